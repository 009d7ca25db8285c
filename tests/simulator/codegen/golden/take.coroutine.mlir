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
  cf.br ^bb1
^bb1:  // pred: ^bb0
  %12 = llvm.getelementptr %arg4[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %13 = llvm.load %12 : !llvm.ptr -> i64
  %14 = llvm.getelementptr %arg4[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %15 = llvm.load %14 : !llvm.ptr -> i64
  %16 = arith.cmpi slt, %13, %15 : i64
  cf.cond_br %16 weights([100, 1]), ^bb4, ^bb2
^bb2:  // pred: ^bb1
  %17 = llvm.getelementptr %arg2[4] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %arg4, %17 : !llvm.ptr, !llvm.ptr
  %c40_i64 = arith.constant 40 : i64
  %c1_i64_4 = arith.constant 1 : i64
  %18 = arith.addi %c40_i64, %c1_i64_4 : i64
  %19 = llvm.getelementptr %arg2[5] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %18, %19 : i64, !llvm.ptr
  %20 = llvm.getelementptr %arg4[6] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %arg2, %20 : !llvm.ptr, !llvm.ptr
  %21 = llvm.load %3 : !llvm.ptr -> i64
  %22 = llvm.getelementptr %arg2[0] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %21, %22 : i64, !llvm.ptr
  %23 = llvm.load %2 : !llvm.ptr -> i64
  %24 = llvm.getelementptr %arg2[6] : (!llvm.ptr) -> !llvm.ptr, i64
  %25 = llvm.load %24 : !llvm.ptr -> i64
  %26 = arith.addi %25, %23 : i64
  %27 = llvm.getelementptr %arg2[6] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %26, %27 : i64, !llvm.ptr
  %28 = llvm.load %1 : !llvm.ptr -> i64
  %29 = llvm.getelementptr %arg2[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %30 = llvm.load %29 : !llvm.ptr -> i64
  %31 = arith.addi %30, %28 : i64
  %32 = llvm.getelementptr %arg2[7] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %31, %32 : i64, !llvm.ptr
  %33 = async.coro.save %5
  async.coro.suspend %33, ^bb13, ^bb3, ^bb12
^bb3:  // pred: ^bb2
  %34 = llvm.getelementptr %arg2[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %35 = llvm.load %34 : !llvm.ptr -> i64
  llvm.store %35, %3 : i64, !llvm.ptr
  %c0_i64_5 = arith.constant 0 : i64
  llvm.store %c0_i64_5, %2 : i64, !llvm.ptr
  %c0_i64_6 = arith.constant 0 : i64
  llvm.store %c0_i64_6, %1 : i64, !llvm.ptr
  cf.br ^bb4
^bb4:  // 2 preds: ^bb1, ^bb3
  %36 = llvm.load %3 : !llvm.ptr -> i64
  %37 = llvm.getelementptr %arg4[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %38 = llvm.load %37 : !llvm.ptr -> i64
  %39 = llvm.getelementptr %arg4[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %40 = llvm.load %39 : !llvm.ptr -> i64
  %41 = llvm.getelementptr %arg4[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %42 = llvm.load %41 : !llvm.ptr -> i64
  %43 = llvm.getelementptr %arg4[4] : (!llvm.ptr) -> !llvm.ptr, i64
  %44 = llvm.load %43 : !llvm.ptr -> !llvm.ptr
  %c3_i64 = arith.constant 3 : i64
  %45 = llvm.getelementptr %arg4[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %46 = llvm.load %45 : !llvm.ptr -> i64
  %47 = arith.andi %38, %42 : i64
  %48 = arith.muli %47, %c3_i64 : i64
  %49 = llvm.getelementptr %44[%48] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %50 = llvm.getelementptr %49[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %51 = llvm.load %50 : !llvm.ptr -> i64
  %52 = llvm.getelementptr %arg4[5] : (!llvm.ptr) -> !llvm.ptr, i64
  %53 = llvm.getelementptr %52[0] : (!llvm.ptr) -> !llvm.ptr, i32
  %54 = llvm.load %53 : !llvm.ptr -> i32
  %55 = arith.extui %54 : i32 to i64
  %56 = arith.addi %51, %55 : i64
  %57 = arith.maxsi %36, %56 : i64
  %58 = llvm.getelementptr %49[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %57, %58 : i64, !llvm.ptr
  %c1_i64_7 = arith.constant 1 : i64
  %59 = arith.addi %38, %c1_i64_7 : i64
  %60 = llvm.getelementptr %arg4[0] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %59, %60 : i64, !llvm.ptr
  %61 = arith.addi %38, %46 : i64
  llvm.store %61, %0 : i64, !llvm.ptr
  cf.br ^bb5
^bb5:  // 2 preds: ^bb4, ^bb7
  %62 = llvm.load %0 : !llvm.ptr -> i64
  %63 = arith.cmpi slt, %62, %40 : i64
  cf.cond_br %63 weights([1, 100]), ^bb6, ^bb8
^bb6:  // pred: ^bb5
  %64 = arith.andi %62, %42 : i64
  %65 = arith.muli %64, %c3_i64 : i64
  %66 = llvm.getelementptr %44[%65] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %67 = llvm.getelementptr %66[0] : (!llvm.ptr) -> !llvm.ptr, i64
  %68 = llvm.load %67 : !llvm.ptr -> i64
  %69 = arith.cmpi sle, %68, %57 : i64
  cf.cond_br %69, ^bb7, ^bb8
^bb7:  // pred: ^bb6
  %70 = llvm.getelementptr %arg4[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %71 = llvm.load %70 : !llvm.ptr -> i64
  %c1_i64_8 = arith.constant 1 : i64
  %72 = arith.addi %71, %c1_i64_8 : i64
  %73 = llvm.getelementptr %arg4[7] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %72, %73 : i64, !llvm.ptr
  %c1_i64_9 = arith.constant 1 : i64
  %74 = arith.addi %62, %c1_i64_9 : i64
  llvm.store %74, %0 : i64, !llvm.ptr
  cf.br ^bb5
^bb8:  // 2 preds: ^bb5, ^bb6
  %75 = llvm.getelementptr %arg4[6] : (!llvm.ptr) -> !llvm.ptr, i64
  %76 = llvm.load %75 : !llvm.ptr -> i64
  %c0_i64_10 = arith.constant 0 : i64
  %77 = arith.cmpi ne, %76, %c0_i64_10 : i64
  cf.cond_br %77 weights([1, 100]), ^bb9, ^bb10
^bb9:  // pred: ^bb8
  %78 = llvm.getelementptr %arg4[6] : (!llvm.ptr) -> !llvm.ptr, i64
  call @df_wake_writer(%arg1, %78) : (!llvm.ptr, !llvm.ptr) -> ()
  cf.br ^bb10
^bb10:  // 2 preds: ^bb8, ^bb9
  %79 = llvm.getelementptr %49[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %80 = arith.subi %57, %36 : i64
  llvm.store %57, %3 : i64, !llvm.ptr
  %81 = llvm.load %2 : !llvm.ptr -> i64
  %82 = arith.addi %81, %80 : i64
  llvm.store %82, %2 : i64, !llvm.ptr
  %c0_i64_11 = arith.constant 0 : i64
  %83 = llvm.mlir.undef : !llvm.struct<(ptr, ptr, i64)>
  %84 = llvm.insertvalue %79, %83[0] : !llvm.struct<(ptr, ptr, i64)> 
  %85 = llvm.insertvalue %79, %84[1] : !llvm.struct<(ptr, ptr, i64)> 
  %86 = llvm.insertvalue %c0_i64_11, %85[2] : !llvm.struct<(ptr, ptr, i64)> 
  %87 = builtin.unrealized_conversion_cast %86 : !llvm.struct<(ptr, ptr, i64)> to memref<i8>
  cf.br ^bb11
^bb11:  // pred: ^bb10
  %88 = llvm.load %3 : !llvm.ptr -> i64
  %89 = llvm.getelementptr %arg2[0] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %88, %89 : i64, !llvm.ptr
  %90 = llvm.load %2 : !llvm.ptr -> i64
  %91 = llvm.getelementptr %arg2[6] : (!llvm.ptr) -> !llvm.ptr, i64
  %92 = llvm.load %91 : !llvm.ptr -> i64
  %93 = arith.addi %92, %90 : i64
  %94 = llvm.getelementptr %arg2[6] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %93, %94 : i64, !llvm.ptr
  %95 = llvm.load %1 : !llvm.ptr -> i64
  %96 = llvm.getelementptr %arg2[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %97 = llvm.load %96 : !llvm.ptr -> i64
  %98 = arith.addi %97, %95 : i64
  %99 = llvm.getelementptr %arg2[7] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %98, %99 : i64, !llvm.ptr
  %c0_i64_12 = arith.constant 0 : i64
  %100 = llvm.getelementptr %arg2[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %c0_i64_12, %100 : i64, !llvm.ptr
  cf.br ^bb12
^bb12:  // 2 preds: ^bb2, ^bb11
  async.coro.free %4, %5
  cf.br ^bb13
^bb13:  // 2 preds: ^bb2, ^bb12
  async.coro.end %5
  return
}