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
    affine.for %10 = 0 to 8 {
      %11 = memref.load %local_A[%8, %10] : memref<8x8xbf16, strided<[?, ?], offset: ?>>
      %12 = arith.extf %11 : bf16 to f32
      affine.for %13 = 0 to 8 {
        %14 = memref.load %local_B[%10, %13] : memref<8x8xbf16, strided<[?, ?], offset: ?>>
        %15 = arith.extf %14 : bf16 to f32
        %16 = arith.mulf %12, %15 : f32
        %17 = memref.load %6[%8, %13] : memref<8x8xf32>
        %18 = arith.addf %17, %16 : f32
        memref.store %18, %6[%8, %13] : memref<8x8xf32>
      }
    }
  }
  affine.for %19 = 0 to 8 {
    affine.for %20 = 0 to 8 {
      %21 = memref.load %6[%19, %20] : memref<8x8xf32>
      %22 = arith.truncf %21 : f32 to bf16
      memref.store %22, %5[%19, %20] : memref<8x8xbf16>
    }
  }
  "df.cost"() {site = 1 : i64} : () -> ()
  affine.for %23 = 0 to 8 {
    affine.for %24 = 0 to 8 {
      %25 = memref.load %5[%23, %24] : memref<8x8xbf16>
      %26 = memref.load %0[%23, %24] : memref<8x8xbf16>
      %27 = arith.addf %25, %26 : bf16
      memref.store %27, %4[%23, %24] : memref<8x8xbf16>
    }
  }
  "df.cost"() {site = 2 : i64} : () -> ()
  affine.for %28 = 0 to 8 {
    affine.for %29 = 0 to 8 {
      %30 = memref.load %4[%28, %29] : memref<8x8xbf16>
      memref.store %30, %local_C[%28, %29] : memref<8x8xbf16, strided<[?, ?], offset: ?>>
    }
  }
  "df.cost"() {site = 3 : i64} : () -> ()
  memref.dealloc %0 : memref<8x8xbf16>
  memref.dealloc %4 : memref<8x8xbf16>
  memref.dealloc %5 : memref<8x8xbf16>
  memref.dealloc %6 : memref<8x8xf32>
  return
}
