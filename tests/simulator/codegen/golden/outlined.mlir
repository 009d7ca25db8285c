module {
  func.func private @work.nest0(%arg0: memref<4x4xi32, strided<[?, ?], offset: ?>>, %arg1: i32) -> i32 attributes {llvm.linkage = #llvm.linkage<internal>} {
    %c2_i32 = arith.constant 2 : i32
    %c0_i32 = arith.constant 0 : i32
    %0 = affine.for %arg2 = 0 to 4 iter_args(%arg3 = %c0_i32) -> (i32) {
      %1 = affine.for %arg4 = 0 to 4 iter_args(%arg5 = %arg3) -> (i32) {
        %2 = memref.load %arg0[%arg2, %arg4] : memref<4x4xi32, strided<[?, ?], offset: ?>>
        %3 = arith.muli %2, %c2_i32 : i32
        %4 = arith.muli %3, %arg1 : i32
        %5 = arith.addi %arg5, %4 : i32
        affine.yield %5 : i32
      }
      affine.yield %1 : i32
    }
    return %0 : i32
  }
  func.func @work(%arg0: index, %arg1: memref<4x4xi32, strided<[?, ?], offset: ?>>, %arg2: index) {
    %c2_i32 = arith.constant 2 : i32
    %c0_i32 = arith.constant 0 : i32
    affine.for %arg3 = 0 to 2 {
      %0 = "df.get"(%arg2) {op = 0 : i64} : (index) -> i32
      %1 = func.call @work.nest0(%arg1, %0) : (memref<4x4xi32, strided<[?, ?], offset: ?>>, i32) -> i32
      affine.for %arg4 = 0 to 4 {
        memref.store %1, %arg1[%arg3, %arg4] : memref<4x4xi32, strided<[?, ?], offset: ?>>
      }
    }
    return
  }
}
