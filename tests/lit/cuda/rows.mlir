// RUN: llm-opt opt --tile-gpu-assign-layouts --tile-gpu-stage --tile-gpu-allocate %s -o %t
// RUN: FileCheck %s < %t
// RUN: sed 's/{tile.bounded} : tensor<48/: tensor<48/' %t > %t.48
// RUN: not llm-opt opt --tile-gpu-allocate %t.48 2>&1 | FileCheck %s --check-prefix=CONVERT
// RUN: sed 's/{tile.bounded} : tensor<80/: tensor<80/' %t > %t.80
// RUN: not llm-opt opt --tile-gpu-allocate %t.80 2>&1 | FileCheck %s --check-prefix=PRODUCT

// Four warps of which two share 48 rows have 32 each: what the second has beyond is not read.
// CHECK-LABEL: func.func @few
// CHECK:         tile.convert {{.*}} {tile.bounded} : tensor<48x64xbf16, {{.*}} warps [2 rows 32, 2 copies]>>
// CHECK-LABEL: func.func @whole
// CHECK-NOT:     tile.bounded
// CHECK:       }
// CHECK-LABEL: func.func @wide
// CHECK:         tile.mma {{.*}} {tile.bounded} : tensor<80x144xbf16, #tile.shared

// Without that, the allocation refuses: another tile lies there.
// CONVERT: error: 'tile.convert' op reads 64 rows of a tile of 48 in shared memory, and is not 'tile.bounded'
// PRODUCT: error: 'tile.mma' op reads 128 rows of a tile of 80 in shared memory, and is not 'tile.bounded'
func.func @few(%x: memref<?xbf16>, %y: memref<?xf32>, %n: index) attributes {tile.kernel} {
  %r = tile.strided_rows %n, %n, %n : tensor<48x1xi64>
  %s = tile.strided_rows %n, %n, %n : tensor<64x1xi64>
  %a = tile.load %x[%r] : memref<?xbf16>, tensor<48x1xi64> -> tensor<48x64xbf16>
  %b = tile.load %x[%s] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x64xbf16>
  %z = arith.constant dense<0.0> : tensor<48x64xf32>
  %p = tile.mma %a, %b, %z : tensor<48x64xbf16>, tensor<64x64xbf16>, tensor<48x64xf32>
  tile.store %p, %y[%r] : tensor<48x64xf32>, memref<?xf32>, tensor<48x1xi64>
  return
}

func.func @whole(%x: memref<?xbf16>, %y: memref<?xf32>, %n: index) attributes {tile.kernel} {
  %r = tile.strided_rows %n, %n, %n : tensor<128x1xi64>
  %s = tile.strided_rows %n, %n, %n : tensor<64x1xi64>
  %a = tile.load %x[%r] : memref<?xbf16>, tensor<128x1xi64> -> tensor<128x64xbf16>
  %b = tile.load %x[%s] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x64xbf16>
  %z = arith.constant dense<0.0> : tensor<128x64xf32>
  %p = tile.mma %a, %b, %z : tensor<128x64xbf16>, tensor<64x64xbf16>, tensor<128x64xf32>
  tile.store %p, %y[%r] : tensor<128x64xf32>, memref<?xf32>, tensor<128x1xi64>
  return
}

// An operand for which registers are too few.
func.func @wide(%x: memref<?xbf16>, %y: memref<?xf32>, %n: index) attributes {tile.kernel} {
  %r = tile.strided_rows %n, %n, %n : tensor<80x1xi64>
  %s = tile.strided_rows %n, %n, %n : tensor<144x1xi64>
  %a = tile.load %x[%r] : memref<?xbf16>, tensor<80x1xi64> -> tensor<80x144xbf16>
  %b = tile.load %x[%s] : memref<?xbf16>, tensor<144x1xi64> -> tensor<144x64xbf16>
  %z = arith.constant dense<0.0> : tensor<80x64xf32>
  %p = tile.mma %a, %b, %z : tensor<80x144xbf16>, tensor<144x64xbf16>, tensor<80x64xf32>
  tile.store %p, %y[%r] : tensor<80x64xf32>, memref<?xf32>, tensor<80x1xi64>
  return
}
