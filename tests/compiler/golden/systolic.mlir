func.func @array_t00000(%pid0: index, %pid1: index, %rows: memref<4x8xf32, strided<[?, ?], offset: ?>>, %columns: memref<8x4xf32, strided<[?, ?], offset: ?>>, %sums: memref<4x4xf32, strided<[?, ?], offset: ?>>) {
  return
}

func.func @array_t001(%pid0: index, %pid1: index, %rows: memref<4x8xf32, strided<[?, ?], offset: ?>>, %columns: memref<8x4xf32, strided<[?, ?], offset: ?>>, %sums: memref<4x4xf32, strided<[?, ?], offset: ?>>, %s0: index) {
  %1 = arith.constant 0 : index
  %2 = arith.constant 8 : index
  %3 = arith.constant 1 : index
  %4 = affine.apply affine_map<(d0, d1) -> (d1 + -1)>(%pid0, %pid1)
  scf.for %0 = %1 to %2 step %3 {
    %5 = memref.load %columns[%0, %4] : memref<8x4xf32, strided<[?, ?], offset: ?>>
    "df.put"(%s0, %5) {op = 0 : i64} : (index, f32) -> ()
    "df.cost"() {site = 0 : i64} : () -> ()
  } {df.loop = 0 : i64}
  return
}

func.func @array_t01(%pid0: index, %pid1: index, %rows: memref<4x8xf32, strided<[?, ?], offset: ?>>, %columns: memref<8x4xf32, strided<[?, ?], offset: ?>>, %sums: memref<4x4xf32, strided<[?, ?], offset: ?>>, %s0: index) {
  %1 = arith.constant 0 : index
  %2 = arith.constant 8 : index
  %3 = arith.constant 1 : index
  %4 = affine.apply affine_map<(d0, d1) -> (d0 + -1)>(%pid0, %pid1)
  scf.for %0 = %1 to %2 step %3 {
    %5 = memref.load %rows[%4, %0] : memref<4x8xf32, strided<[?, ?], offset: ?>>
    "df.put"(%s0, %5) {op = 0 : i64} : (index, f32) -> ()
    "df.cost"() {site = 0 : i64} : () -> ()
  } {df.loop = 0 : i64}
  return
}

func.func @array_t1(%pid0: index, %pid1: index, %rows: memref<4x8xf32, strided<[?, ?], offset: ?>>, %columns: memref<8x4xf32, strided<[?, ?], offset: ?>>, %sums: memref<4x4xf32, strided<[?, ?], offset: ?>>, %s0: index, %s1: index, %s2: index, %s3: index) {
  %0 = arith.constant 0.0 : f32
  %1 = memref.alloca() {df.name = "total"} : memref<f32>
  %3 = arith.constant 0 : index
  %4 = arith.constant 8 : index
  %5 = arith.constant 1 : index
  %12 = affine.apply affine_map<(d0, d1) -> (d0 + -1)>(%pid0, %pid1)
  %13 = affine.apply affine_map<(d0, d1) -> (d1 + -1)>(%pid0, %pid1)
  memref.store %0, %1[] : memref<f32>
  scf.for %2 = %3 to %4 step %5 {
    %6 = "df.get"(%s0) {op = 0 : i64} : (index) -> f32
    %7 = "df.get"(%s1) {op = 1 : i64} : (index) -> f32
    "df.put"(%s2, %6) {op = 2 : i64} : (index, f32) -> ()
    "df.put"(%s3, %7) {op = 3 : i64} : (index, f32) -> ()
    %8 = memref.load %1[] : memref<f32>
    %9 = arith.mulf %6, %7 : f32
    %10 = arith.addf %8, %9 : f32
    memref.store %10, %1[] : memref<f32>
    "df.cost"() {site = 0 : i64} : () -> ()
  } {df.loop = 0 : i64}
  %11 = memref.load %1[] : memref<f32>
  memref.store %11, %sums[%12, %13] : memref<4x4xf32, strided<[?, ?], offset: ?>>
  return
}

func.func @array_t0001(%pid0: index, %pid1: index, %rows: memref<4x8xf32, strided<[?, ?], offset: ?>>, %columns: memref<8x4xf32, strided<[?, ?], offset: ?>>, %sums: memref<4x4xf32, strided<[?, ?], offset: ?>>, %s0: index) {
  %1 = arith.constant 0 : index
  %2 = arith.constant 8 : index
  %3 = arith.constant 1 : index
  scf.for %0 = %1 to %2 step %3 {
    %4 = "df.get"(%s0) {op = 0 : i64} : (index) -> f32
    "df.cost"() {site = 0 : i64} : () -> ()
  } {df.loop = 0 : i64}
  return
}

func.func @array_t00001(%pid0: index, %pid1: index, %rows: memref<4x8xf32, strided<[?, ?], offset: ?>>, %columns: memref<8x4xf32, strided<[?, ?], offset: ?>>, %sums: memref<4x4xf32, strided<[?, ?], offset: ?>>, %s0: index) {
  %1 = arith.constant 0 : index
  %2 = arith.constant 8 : index
  %3 = arith.constant 1 : index
  scf.for %0 = %1 to %2 step %3 {
    %4 = "df.get"(%s0) {op = 0 : i64} : (index) -> f32
    "df.cost"() {site = 0 : i64} : () -> ()
  } {df.loop = 0 : i64}
  return
}
