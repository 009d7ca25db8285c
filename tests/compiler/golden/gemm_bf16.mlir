func.func @gemm_t001(%pid0: index, %pid1: index, %pid2: index, %local_A: memref<8x8xbf16, strided<[?, ?], offset: ?>>, %local_B: memref<8x8xbf16, strided<[?, ?], offset: ?>>, %local_C: memref<8x8xbf16, strided<[?, ?], offset: ?>>) {
  %0 = memref.alloc() {df.name = "C_in"} : memref<8x8xbf16>
  %1 = arith.constant 0.0 : bf16
  %4 = memref.alloc() {df.name = "C_out"} : memref<8x8xbf16>
  %5 = memref.alloc() : memref<8x8xbf16>
  %6 = memref.alloc() : memref<8x8xf32>
  %7 = arith.constant 0.0 : f32
  affine.for %2 = 0 to 8 {
    affine.for %3 = 0 to 8 {
      memref.store %1, %0[%2, %3] : memref<8x8xbf16>
    }
  }
  "df.cost"() {site = 0 : i64} : () -> ()
  affine.for %8 = 0 to 8 {
    affine.for %9 = 0 to 8 {
      memref.store %7, %6[%8, %9] : memref<8x8xf32>
    }
  }
  affine.for %10 = 0 to 8 {
    affine.for %11 = 0 to 8 {
      %12 = memref.load %local_A[%11, %10] : memref<8x8xbf16, strided<[?, ?], offset: ?>>
      %13 = arith.extf %12 : bf16 to f32
      affine.for %14 = 0 to 8 {
        %15 = memref.load %6[%11, %14] : memref<8x8xf32>
        %16 = memref.load %local_B[%10, %14] : memref<8x8xbf16, strided<[?, ?], offset: ?>>
        %17 = arith.extf %16 : bf16 to f32
        %18 = arith.mulf %13, %17 : f32
        %19 = arith.addf %15, %18 : f32
        memref.store %19, %6[%11, %14] : memref<8x8xf32>
      }
    }
  }
  affine.for %20 = 0 to 8 {
    affine.for %21 = 0 to 8 {
      %22 = memref.load %6[%20, %21] : memref<8x8xf32>
      %23 = arith.truncf %22 : f32 to bf16
      memref.store %23, %5[%20, %21] : memref<8x8xbf16>
    }
  }
  "df.cost"() {site = 1 : i64} : () -> ()
  affine.for %24 = 0 to 8 {
    affine.for %25 = 0 to 8 {
      %26 = memref.load %5[%24, %25] : memref<8x8xbf16>
      %27 = memref.load %0[%24, %25] : memref<8x8xbf16>
      %28 = arith.addf %26, %27 : bf16
      memref.store %28, %4[%24, %25] : memref<8x8xbf16>
    }
  }
  "df.cost"() {site = 2 : i64} : () -> ()
  affine.for %29 = 0 to 8 {
    affine.for %30 = 0 to 8 {
      %31 = memref.load %4[%29, %30] : memref<8x8xbf16>
      memref.store %31, %local_C[%29, %30] : memref<8x8xbf16, strided<[?, ?], offset: ?>>
    }
  }
  "df.cost"() {site = 3 : i64} : () -> ()
  memref.dealloc %0 : memref<8x8xbf16>
  memref.dealloc %4 : memref<8x8xbf16>
  memref.dealloc %5 : memref<8x8xbf16>
  memref.dealloc %6 : memref<8x8xf32>
  return
}
