func.func @gemm_t01(%pid0: index, %pid1: index, %pid2: index, %local_A: memref<8x8xi16, strided<[?, ?], offset: ?>>, %local_B: memref<8x8xi16, strided<[?, ?], offset: ?>>, %local_C: memref<8x8xi16, strided<[?, ?], offset: ?>>, %s0: index) {
  %0 = memref.alloc() {df.name = "C_in"} : memref<8x8xi16>
  %1 = arith.constant 0 : i16
  %4 = memref.alloc() {df.name = "C_out"} : memref<8x8xi16>
  %5 = memref.alloc() : memref<8x8xi16>
  affine.for %2 = 0 to 8 {
    affine.for %3 = 0 to 8 {
      memref.store %1, %0[%2, %3] : memref<8x8xi16>
    }
  }
  "df.cost"() {site = 0 : i64} : () -> ()
  affine.for %6 = 0 to 8 {
    affine.for %7 = 0 to 8 {
      memref.store %1, %5[%6, %7] : memref<8x8xi16>
    }
  }
  affine.for %8 = 0 to 8 {
    affine.for %9 = 0 to 8 {
      %10 = memref.load %local_A[%9, %8] : memref<8x8xi16, strided<[?, ?], offset: ?>>
      affine.for %11 = 0 to 8 {
        %12 = memref.load %5[%9, %11] : memref<8x8xi16>
        %13 = memref.load %local_B[%8, %11] : memref<8x8xi16, strided<[?, ?], offset: ?>>
        %14 = arith.muli %10, %13 : i16
        %15 = arith.addi %12, %14 : i16
        memref.store %15, %5[%9, %11] : memref<8x8xi16>
      }
    }
  }
  "df.cost"() {site = 1 : i64} : () -> ()
  affine.for %16 = 0 to 8 {
    affine.for %17 = 0 to 8 {
      %18 = memref.load %5[%16, %17] : memref<8x8xi16>
      %19 = memref.load %0[%16, %17] : memref<8x8xi16>
      %20 = arith.addi %18, %19 : i16
      memref.store %20, %4[%16, %17] : memref<8x8xi16>
    }
  }
  "df.cost"() {site = 2 : i64} : () -> ()
  "df.put_block"(%s0, %4) {op = 0 : i64} : (index, memref<8x8xi16>) -> ()
  memref.dealloc %0 : memref<8x8xi16>
  memref.dealloc %4 : memref<8x8xi16>
  memref.dealloc %5 : memref<8x8xi16>
  return
}

func.func @gemm_t11(%pid0: index, %pid1: index, %pid2: index, %local_A: memref<8x8xi16, strided<[?, ?], offset: ?>>, %local_B: memref<8x8xi16, strided<[?, ?], offset: ?>>, %local_C: memref<8x8xi16, strided<[?, ?], offset: ?>>, %s0: index, %s1: index) {
  %0 = memref.alloc() {df.name = "C_in"} : memref<8x8xi16>
  %1 = memref.alloc() {df.name = "C_out"} : memref<8x8xi16>
  %2 = memref.alloc() : memref<8x8xi16>
  %3 = arith.constant 0 : i16
  "df.get_block"(%s0, %0) {op = 0 : i64} : (index, memref<8x8xi16>) -> ()
  affine.for %4 = 0 to 8 {
    affine.for %5 = 0 to 8 {
      memref.store %3, %2[%4, %5] : memref<8x8xi16>
    }
  }
  affine.for %6 = 0 to 8 {
    affine.for %7 = 0 to 8 {
      %8 = memref.load %local_A[%7, %6] : memref<8x8xi16, strided<[?, ?], offset: ?>>
      affine.for %9 = 0 to 8 {
        %10 = memref.load %2[%7, %9] : memref<8x8xi16>
        %11 = memref.load %local_B[%6, %9] : memref<8x8xi16, strided<[?, ?], offset: ?>>
        %12 = arith.muli %8, %11 : i16
        %13 = arith.addi %10, %12 : i16
        memref.store %13, %2[%7, %9] : memref<8x8xi16>
      }
    }
  }
  "df.cost"() {site = 0 : i64} : () -> ()
  affine.for %14 = 0 to 8 {
    affine.for %15 = 0 to 8 {
      %16 = memref.load %2[%14, %15] : memref<8x8xi16>
      %17 = memref.load %0[%14, %15] : memref<8x8xi16>
      %18 = arith.addi %16, %17 : i16
      memref.store %18, %1[%14, %15] : memref<8x8xi16>
    }
  }
  "df.cost"() {site = 1 : i64} : () -> ()
  "df.put_block"(%s1, %1) {op = 1 : i64} : (index, memref<8x8xi16>) -> ()
  memref.dealloc %0 : memref<8x8xi16>
  memref.dealloc %1 : memref<8x8xi16>
  memref.dealloc %2 : memref<8x8xi16>
  return
}

func.func @gemm_t101(%pid0: index, %pid1: index, %pid2: index, %local_A: memref<8x8xi16, strided<[?, ?], offset: ?>>, %local_B: memref<8x8xi16, strided<[?, ?], offset: ?>>, %local_C: memref<8x8xi16, strided<[?, ?], offset: ?>>, %s0: index) {
  %0 = memref.alloc() {df.name = "C_in"} : memref<8x8xi16>
  %1 = memref.alloc() {df.name = "C_out"} : memref<8x8xi16>
  %2 = memref.alloc() : memref<8x8xi16>
  %3 = arith.constant 0 : i16
  "df.get_block"(%s0, %0) {op = 0 : i64} : (index, memref<8x8xi16>) -> ()
  affine.for %4 = 0 to 8 {
    affine.for %5 = 0 to 8 {
      memref.store %3, %2[%4, %5] : memref<8x8xi16>
    }
  }
  affine.for %6 = 0 to 8 {
    affine.for %7 = 0 to 8 {
      %8 = memref.load %local_A[%7, %6] : memref<8x8xi16, strided<[?, ?], offset: ?>>
      affine.for %9 = 0 to 8 {
        %10 = memref.load %2[%7, %9] : memref<8x8xi16>
        %11 = memref.load %local_B[%6, %9] : memref<8x8xi16, strided<[?, ?], offset: ?>>
        %12 = arith.muli %8, %11 : i16
        %13 = arith.addi %10, %12 : i16
        memref.store %13, %2[%7, %9] : memref<8x8xi16>
      }
    }
  }
  "df.cost"() {site = 0 : i64} : () -> ()
  affine.for %14 = 0 to 8 {
    affine.for %15 = 0 to 8 {
      %16 = memref.load %2[%14, %15] : memref<8x8xi16>
      %17 = memref.load %0[%14, %15] : memref<8x8xi16>
      %18 = arith.addi %16, %17 : i16
      memref.store %18, %1[%14, %15] : memref<8x8xi16>
    }
  }
  "df.cost"() {site = 1 : i64} : () -> ()
  affine.for %19 = 0 to 8 {
    affine.for %20 = 0 to 8 {
      %21 = memref.load %1[%19, %20] : memref<8x8xi16>
      memref.store %21, %local_C[%19, %20] : memref<8x8xi16, strided<[?, ?], offset: ?>>
    }
  }
  "df.cost"() {site = 2 : i64} : () -> ()
  memref.dealloc %0 : memref<8x8xi16>
  memref.dealloc %1 : memref<8x8xi16>
  memref.dealloc %2 : memref<8x8xi16>
  return
}
