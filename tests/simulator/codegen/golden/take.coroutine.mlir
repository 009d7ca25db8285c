func.func private @body1(%arg0: index, %arg1: !llvm.ptr, %arg2: !llvm.ptr, %arg3: !llvm.ptr, %arg4: !llvm.ptr) attributes {llvm.linkage = #llvm.linkage<internal>} {
  %c1_i64 = arith.constant 1 : i64
  %0 = llvm.alloca %c1_i64 x i64 : (i64) -> !llvm.ptr
  %c1_i64_0 = arith.constant 1 : i64
  %1 = llvm.alloca %c1_i64_0 x i64 : (i64) -> !llvm.ptr
  %c1_i64_1 = arith.constant 1 : i64
  %2 = llvm.alloca %c1_i64_1 x i64 : (i64) -> !llvm.ptr
  %c1_i64_2 = arith.constant 1 : i64
  %3 = llvm.alloca %c1_i64_2 x i64 : (i64) -> !llvm.ptr
  %4 = async.coro.id
  %5 = async.coro.begin %4
  %6 = builtin.unrealized_conversion_cast %5 : !async.coro.handle to !llvm.ptr
  %7 = llvm.getelementptr %arg2[2] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %6, %7 : !llvm.ptr, !llvm.ptr
  %8 = llvm.getelementptr %arg2[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %9 = llvm.load %8 : !llvm.ptr -> i64
  llvm.store %9, %3 : i64, !llvm.ptr
  %c0_i64 = arith.constant 0 : i64
  llvm.store %c0_i64, %2 : i64, !llvm.ptr
  %c0_i64_3 = arith.constant 0 : i64
  llvm.store %c0_i64_3, %1 : i64, !llvm.ptr
  %10 = llvm.getelementptr %arg1[8] : (!llvm.ptr) -> !llvm.ptr, i64
  %11 = llvm.load %10 : !llvm.ptr -> !llvm.ptr
  %12 = async.coro.save %5
  async.coro.suspend %12, ^bb14, ^bb1, ^bb13
^bb1:  // pred: ^bb0
  cf.br ^bb2
^bb2:  // pred: ^bb1
  %13 = llvm.getelementptr %arg4[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %14 = llvm.load %13 : !llvm.ptr -> i64
  %15 = llvm.getelementptr %arg4[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %16 = llvm.load %15 : !llvm.ptr -> i64
  %17 = arith.cmpi slt, %14, %16 : i64
  cf.cond_br %17 weights([100, 1]), ^bb5, ^bb3
^bb3:  // pred: ^bb2
  %18 = llvm.getelementptr %arg2[4] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %arg4, %18 : !llvm.ptr, !llvm.ptr
  %c40_i64 = arith.constant 40 : i64
  %c1_i64_4 = arith.constant 1 : i64
  %19 = arith.addi %c40_i64, %c1_i64_4 : i64
  %20 = llvm.getelementptr %arg2[5] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %19, %20 : i64, !llvm.ptr
  %21 = llvm.getelementptr %arg4[6] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %arg2, %21 : !llvm.ptr, !llvm.ptr
  %22 = llvm.load %3 : !llvm.ptr -> i64
  %23 = llvm.getelementptr %arg2[0] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %22, %23 : i64, !llvm.ptr
  %24 = llvm.load %2 : !llvm.ptr -> i64
  %25 = llvm.getelementptr %arg2[6] : (!llvm.ptr) -> !llvm.ptr, i64
  %26 = llvm.load %25 : !llvm.ptr -> i64
  %27 = arith.addi %26, %24 : i64
  %28 = llvm.getelementptr %arg2[6] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %27, %28 : i64, !llvm.ptr
  %29 = llvm.load %1 : !llvm.ptr -> i64
  %30 = llvm.getelementptr %arg2[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %31 = llvm.load %30 : !llvm.ptr -> i64
  %32 = arith.addi %31, %29 : i64
  %33 = llvm.getelementptr %arg2[7] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %32, %33 : i64, !llvm.ptr
  %34 = async.coro.save %5
  async.coro.suspend %34, ^bb14, ^bb4, ^bb13
^bb4:  // pred: ^bb3
  %35 = llvm.getelementptr %arg2[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %36 = llvm.load %35 : !llvm.ptr -> i64
  llvm.store %36, %3 : i64, !llvm.ptr
  %c0_i64_5 = arith.constant 0 : i64
  llvm.store %c0_i64_5, %2 : i64, !llvm.ptr
  %c0_i64_6 = arith.constant 0 : i64
  llvm.store %c0_i64_6, %1 : i64, !llvm.ptr
  cf.br ^bb5
^bb5:  // 2 preds: ^bb2, ^bb4
  %37 = llvm.load %3 : !llvm.ptr -> i64
  %38 = llvm.getelementptr %arg4[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %39 = llvm.load %38 : !llvm.ptr -> i64
  %40 = llvm.getelementptr %arg4[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %41 = llvm.load %40 : !llvm.ptr -> i64
  %42 = llvm.getelementptr %arg4[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %43 = llvm.load %42 : !llvm.ptr -> i64
  %44 = llvm.getelementptr %arg4[4] : (!llvm.ptr) -> !llvm.ptr, i64
  %45 = llvm.load %44 : !llvm.ptr -> !llvm.ptr
  %c3_i64 = arith.constant 3 : i64
  %46 = llvm.getelementptr %arg4[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %47 = llvm.load %46 : !llvm.ptr -> i64
  %48 = arith.andi %39, %43 : i64
  %49 = arith.muli %48, %c3_i64 : i64
  %50 = llvm.getelementptr %45[%49] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %51 = llvm.getelementptr %50[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %52 = llvm.load %51 : !llvm.ptr -> i64
  %53 = llvm.getelementptr %arg4[5] : (!llvm.ptr) -> !llvm.ptr, i64
  %54 = llvm.getelementptr %53[0] : (!llvm.ptr) -> !llvm.ptr, i32
  %55 = llvm.load %54 : !llvm.ptr -> i32
  %56 = arith.extui %55 : i32 to i64
  %57 = arith.addi %52, %56 : i64
  %58 = arith.maxsi %37, %57 : i64
  %59 = llvm.getelementptr %50[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %58, %59 : i64, !llvm.ptr
  %c1_i64_7 = arith.constant 1 : i64
  %60 = arith.addi %39, %c1_i64_7 : i64
  %61 = llvm.getelementptr %arg4[0] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %60, %61 : i64, !llvm.ptr
  %62 = arith.addi %39, %47 : i64
  llvm.store %62, %0 : i64, !llvm.ptr
  cf.br ^bb6
^bb6:  // 2 preds: ^bb5, ^bb8
  %63 = llvm.load %0 : !llvm.ptr -> i64
  %64 = arith.cmpi slt, %63, %41 : i64
  cf.cond_br %64 weights([1, 100]), ^bb7, ^bb9
^bb7:  // pred: ^bb6
  %65 = arith.andi %63, %43 : i64
  %66 = arith.muli %65, %c3_i64 : i64
  %67 = llvm.getelementptr %45[%66] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %68 = llvm.getelementptr %67[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %69 = llvm.load %68 : !llvm.ptr -> i64
  %70 = arith.cmpi sle, %69, %58 : i64
  cf.cond_br %70, ^bb8, ^bb9
^bb8:  // pred: ^bb7
  %71 = llvm.getelementptr %arg4[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %72 = llvm.load %71 : !llvm.ptr -> i64
  %c1_i64_8 = arith.constant 1 : i64
  %73 = arith.addi %72, %c1_i64_8 : i64
  %74 = llvm.getelementptr %arg4[7] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %73, %74 : i64, !llvm.ptr
  %c1_i64_9 = arith.constant 1 : i64
  %75 = arith.addi %63, %c1_i64_9 : i64
  llvm.store %75, %0 : i64, !llvm.ptr
  cf.br ^bb6
^bb9:  // 2 preds: ^bb6, ^bb7
  %76 = llvm.getelementptr %arg4[6] : (!llvm.ptr) -> !llvm.ptr, i64
  %77 = llvm.load %76 : !llvm.ptr -> i64
  %c0_i64_10 = arith.constant 0 : i64
  %78 = arith.cmpi ne, %77, %c0_i64_10 : i64
  cf.cond_br %78 weights([1, 100]), ^bb10, ^bb11
^bb10:  // pred: ^bb9
  %79 = llvm.getelementptr %arg4[6] : (!llvm.ptr) -> !llvm.ptr, i64
  call @df_wake_writer(%arg1, %79) : (!llvm.ptr, !llvm.ptr) -> ()
  cf.br ^bb11
^bb11:  // 2 preds: ^bb9, ^bb10
  %80 = llvm.getelementptr %50[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %81 = arith.subi %58, %37 : i64
  llvm.store %58, %3 : i64, !llvm.ptr
  %82 = llvm.load %2 : !llvm.ptr -> i64
  %83 = arith.addi %82, %81 : i64
  llvm.store %83, %2 : i64, !llvm.ptr
  %c0_i64_11 = arith.constant 0 : i64
  %84 = llvm.mlir.undef : !llvm.struct<(ptr, ptr, i64)>
  %85 = llvm.insertvalue %80, %84[0] : !llvm.struct<(ptr, ptr, i64)> 
  %86 = llvm.insertvalue %80, %85[1] : !llvm.struct<(ptr, ptr, i64)> 
  %87 = llvm.insertvalue %c0_i64_11, %86[2] : !llvm.struct<(ptr, ptr, i64)> 
  %88 = builtin.unrealized_conversion_cast %87 : !llvm.struct<(ptr, ptr, i64)> to memref<i8>
  cf.br ^bb12
^bb12:  // pred: ^bb11
  %89 = llvm.load %3 : !llvm.ptr -> i64
  %90 = llvm.getelementptr %arg2[0] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %89, %90 : i64, !llvm.ptr
  %91 = llvm.load %2 : !llvm.ptr -> i64
  %92 = llvm.getelementptr %arg2[6] : (!llvm.ptr) -> !llvm.ptr, i64
  %93 = llvm.load %92 : !llvm.ptr -> i64
  %94 = arith.addi %93, %91 : i64
  %95 = llvm.getelementptr %arg2[6] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %94, %95 : i64, !llvm.ptr
  %96 = llvm.load %1 : !llvm.ptr -> i64
  %97 = llvm.getelementptr %arg2[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %98 = llvm.load %97 : !llvm.ptr -> i64
  %99 = arith.addi %98, %96 : i64
  %100 = llvm.getelementptr %arg2[7] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %99, %100 : i64, !llvm.ptr
  %c0_i64_12 = arith.constant 0 : i64
  %101 = llvm.getelementptr %arg2[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %c0_i64_12, %101 : i64, !llvm.ptr
  cf.br ^bb13
^bb13:  // 3 preds: ^bb0, ^bb3, ^bb12
  async.coro.free %4, %5
  cf.br ^bb14
^bb14:  // 3 preds: ^bb0, ^bb3, ^bb13
  async.coro.end %5
  return
}