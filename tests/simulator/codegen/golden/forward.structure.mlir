module {
  func.func @forward(%arg0: index, %arg1: index, %arg2: index) {
    %c3 = arith.constant 3 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %alloc = memref.alloc() : memref<4xi16>
    cf.br ^bb1(%c0 : index)
  ^bb1(%0: index):  // 2 preds: ^bb0, ^bb5
    %1 = arith.cmpi slt, %0, %c3 : index
    cf.cond_br %1, ^bb2, ^bb6
  ^bb2:  // pred: ^bb1
    %2 = "df.take"(%arg1) {op = 0 : i64} : (index) -> memref<4xi16>
    cf.br ^bb3(%c0 : index)
  ^bb3(%3: index):  // 2 preds: ^bb2, ^bb4
    %4 = arith.cmpi slt, %3, %c4 : index
    cf.cond_br %4, ^bb4, ^bb5
  ^bb4:  // pred: ^bb3
    %5 = memref.load %2[%3] : memref<4xi16>
    memref.store %5, %alloc[%3] : memref<4xi16>
    %6 = arith.addi %3, %c1 : index
    cf.br ^bb3(%6 : index)
  ^bb5:  // pred: ^bb3
    %7 = memref.load %alloc[%c2] : memref<4xi16>
    %8 = "df.offer"(%arg2) {op = 1 : i64} : (index) -> memref<i16>
    memref.store %7, %8[] : memref<i16>
    "df.cost"() {site = 0 : i64} : () -> ()
    %9 = arith.addi %0, %c1 : index
    cf.br ^bb1(%9 : index)
  ^bb6:  // pred: ^bb1
    memref.dealloc %alloc : memref<4xi16>
    return
  }
}
