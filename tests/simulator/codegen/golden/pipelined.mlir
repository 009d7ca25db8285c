module {
  func.func @work(%arg0: index, %arg1: index) {
    "df.enter"() {pipeline = 0 : i64} : () -> ()
    affine.for %arg2 = 0 to 8 {
      "df.issue"() {pipeline = 0 : i64} : () -> ()
      %0 = "df.get"(%arg0) {op = 0 : i64, pipeline = 0 : i64, place = 0 : i64} : (index) -> i32
      "df.put"(%arg1, %0) {op = 1 : i64, pipeline = 0 : i64, place = 1 : i64, stage = 4 : i64} : (index, i32) -> ()
    } {df.depth = 3 : i64, df.ii = 2 : i64}
    "df.leave"() {pipeline = 0 : i64} : () -> ()
    affine.for %arg2 = 0 to 8 {
      %0 = "df.get"(%arg0) {op = 2 : i64} : (index) -> i32
    }
    return
  }
}
