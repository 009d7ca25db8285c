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
  %23 = llvm.load %2 : !llvm.ptr -> i64
  %24 = llvm.load %1 : !llvm.ptr -> i64
  call @df_pause(%arg2, %22, %23, %24) : (!llvm.ptr, i64, i64, i64) -> ()
  %25 = async.coro.save %5
  async.coro.suspend %25, ^bb14, ^bb4, ^bb13
^bb4:  // pred: ^bb3
  %26 = llvm.getelementptr %arg2[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %27 = llvm.load %26 : !llvm.ptr -> i64
  llvm.store %27, %3 : i64, !llvm.ptr
  %c0_i64_5 = arith.constant 0 : i64
  llvm.store %c0_i64_5, %2 : i64, !llvm.ptr
  %c0_i64_6 = arith.constant 0 : i64
  llvm.store %c0_i64_6, %1 : i64, !llvm.ptr
  cf.br ^bb5
^bb5:  // 2 preds: ^bb2, ^bb4
  %28 = llvm.load %3 : !llvm.ptr -> i64
  %29 = llvm.getelementptr %arg4[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %30 = llvm.load %29 : !llvm.ptr -> i64
  %31 = llvm.getelementptr %arg4[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %32 = llvm.load %31 : !llvm.ptr -> i64
  %33 = llvm.getelementptr %arg4[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %34 = llvm.load %33 : !llvm.ptr -> i64
  %35 = llvm.getelementptr %arg4[4] : (!llvm.ptr) -> !llvm.ptr, i64
  %36 = llvm.load %35 : !llvm.ptr -> !llvm.ptr
  %c3_i64 = arith.constant 3 : i64
  %37 = llvm.getelementptr %arg4[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %38 = llvm.load %37 : !llvm.ptr -> i64
  %39 = arith.andi %30, %34 : i64
  %40 = arith.muli %39, %c3_i64 : i64
  %41 = llvm.getelementptr %36[%40] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %42 = llvm.getelementptr %41[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %43 = llvm.load %42 : !llvm.ptr -> i64
  %44 = llvm.getelementptr %arg4[5] : (!llvm.ptr) -> !llvm.ptr, i64
  %45 = llvm.getelementptr %44[0] : (!llvm.ptr) -> !llvm.ptr, i32
  %46 = llvm.load %45 : !llvm.ptr -> i32
  %47 = arith.extui %46 : i32 to i64
  %48 = arith.addi %43, %47 : i64
  %49 = arith.maxsi %28, %48 : i64
  %50 = llvm.getelementptr %41[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %49, %50 : i64, !llvm.ptr
  %c1_i64_7 = arith.constant 1 : i64
  %51 = arith.addi %30, %c1_i64_7 : i64
  %52 = llvm.getelementptr %arg4[0] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %51, %52 : i64, !llvm.ptr
  %53 = arith.addi %30, %38 : i64
  llvm.store %53, %0 : i64, !llvm.ptr
  cf.br ^bb6
^bb6:  // 2 preds: ^bb5, ^bb8
  %54 = llvm.load %0 : !llvm.ptr -> i64
  %55 = arith.cmpi slt, %54, %32 : i64
  cf.cond_br %55 weights([1, 100]), ^bb7, ^bb9
^bb7:  // pred: ^bb6
  %56 = arith.andi %54, %34 : i64
  %57 = arith.muli %56, %c3_i64 : i64
  %58 = llvm.getelementptr %36[%57] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %59 = llvm.getelementptr %58[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %60 = llvm.load %59 : !llvm.ptr -> i64
  %61 = arith.cmpi sle, %60, %49 : i64
  cf.cond_br %61, ^bb8, ^bb9
^bb8:  // pred: ^bb7
  %62 = llvm.getelementptr %arg4[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %63 = llvm.load %62 : !llvm.ptr -> i64
  %c1_i64_8 = arith.constant 1 : i64
  %64 = arith.addi %63, %c1_i64_8 : i64
  %65 = llvm.getelementptr %arg4[7] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %64, %65 : i64, !llvm.ptr
  %c1_i64_9 = arith.constant 1 : i64
  %66 = arith.addi %54, %c1_i64_9 : i64
  llvm.store %66, %0 : i64, !llvm.ptr
  cf.br ^bb6
^bb9:  // 2 preds: ^bb6, ^bb7
  %67 = llvm.getelementptr %arg4[6] : (!llvm.ptr) -> !llvm.ptr, i64
  %68 = llvm.load %67 : !llvm.ptr -> i64
  %c0_i64_10 = arith.constant 0 : i64
  %69 = arith.cmpi ne, %68, %c0_i64_10 : i64
  cf.cond_br %69 weights([1, 100]), ^bb10, ^bb11
^bb10:  // pred: ^bb9
  %70 = llvm.getelementptr %arg4[6] : (!llvm.ptr) -> !llvm.ptr, i64
  call @df_wake_writer(%arg1, %70) : (!llvm.ptr, !llvm.ptr) -> ()
  cf.br ^bb11
^bb11:  // 2 preds: ^bb9, ^bb10
  %71 = llvm.getelementptr %41[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %72 = arith.subi %49, %28 : i64
  llvm.store %49, %3 : i64, !llvm.ptr
  %73 = llvm.load %2 : !llvm.ptr -> i64
  %74 = arith.addi %73, %72 : i64
  llvm.store %74, %2 : i64, !llvm.ptr
  %c0_i64_11 = arith.constant 0 : i64
  %75 = llvm.mlir.undef : !llvm.struct<(ptr, ptr, i64)>
  %76 = llvm.insertvalue %71, %75[0] : !llvm.struct<(ptr, ptr, i64)> 
  %77 = llvm.insertvalue %71, %76[1] : !llvm.struct<(ptr, ptr, i64)> 
  %78 = llvm.insertvalue %c0_i64_11, %77[2] : !llvm.struct<(ptr, ptr, i64)> 
  %79 = builtin.unrealized_conversion_cast %78 : !llvm.struct<(ptr, ptr, i64)> to memref<i8>
  cf.br ^bb12
^bb12:  // pred: ^bb11
  %80 = llvm.load %3 : !llvm.ptr -> i64
  %81 = llvm.load %2 : !llvm.ptr -> i64
  %82 = llvm.load %1 : !llvm.ptr -> i64
  call @df_pause(%arg2, %80, %81, %82) : (!llvm.ptr, i64, i64, i64) -> ()
  %c0_i64_12 = arith.constant 0 : i64
  %83 = llvm.getelementptr %arg2[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %c0_i64_12, %83 : i64, !llvm.ptr
  cf.br ^bb13
^bb13:  // 3 preds: ^bb0, ^bb3, ^bb12
  async.coro.free %4, %5
  cf.br ^bb14
^bb14:  // 3 preds: ^bb0, ^bb3, ^bb13
  async.coro.end %5
  return
}