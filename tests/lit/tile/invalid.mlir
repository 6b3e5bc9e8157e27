// RUN: llm-opt opt --split-input-file --verify-diagnostics %s
// Every verifier of the tile dialect, with its whole message.

func.func @f(%b: memref<?xf32>, %r: tensor<8x1xi64>) {
  // expected-error@+1 {{'tile.load' op tile has type 'tensor<?x8xf32>'; a tile is a 2-D tensor of static shape}}
  %t = tile.load %b[%r] : memref<?xf32>, tensor<8x1xi64> -> tensor<?x8xf32>
  return
}

// -----

func.func @f(%b: memref<?xf32>, %r: tensor<8x1xi64>) {
  // expected-error@+1 {{'tile.load' op rows has type 'tensor<8x1xi64>'; a tile of 16 rows needs tensor<16x1xi64>}}
  %t = tile.load %b[%r] : memref<?xf32>, tensor<8x1xi64> -> tensor<16x8xf32>
  return
}

// -----

func.func @f(%b: memref<?xf32>, %r: tensor<8x1xi64>) {
  // expected-error@+1 {{'tile.load' op cannot load elements of 'f32' as 'bf16'; types must agree, or memory hold a narrower float}}
  %t = tile.load %b[%r] : memref<?xf32>, tensor<8x1xi64> -> tensor<8x8xbf16>
  return
}

// -----

func.func @f(%b: memref<?xf32>, %r: tensor<8x1xi64>, %t: tensor<8x8xbf16>) {
  // expected-error@+1 {{'tile.store' op cannot store elements of 'bf16' as 'f32'; types must agree, or memory hold a narrower float}}
  tile.store %t, %b[%r] : tensor<8x8xbf16>, memref<?xf32>, tensor<8x1xi64>
  return
}

// -----

func.func @f(%b: memref<?xf32>, %r: tensor<8x2xi64>) {
  // expected-error@+1 {{'tile.prefetch' op rows has type 'tensor<8x2xi64>'; row addresses have one column}}
  tile.prefetch %b[%r] columns 8 : memref<?xf32>, tensor<8x2xi64>
  return
}

// -----

func.func @f(%b: memref<?xf32>, %r: tensor<8x1xi64>) {
  // expected-error@+1 {{'tile.prefetch' op columns is 0; it must be 1 or more}}
  tile.prefetch %b[%r] columns 0 : memref<?xf32>, tensor<8x1xi64>
  return
}

// -----

func.func @f(%i: index) {
  // expected-error@+1 {{'tile.used_rows' op is of 0 rows; it must be of 1 or more}}
  tile.used_rows %i to %i of 0
  return
}

// -----

func.func @f(%i: index) {
  // expected-error@+1 {{'tile.strided_rows' op result has type 'tensor<8x2xi64>'; row addresses have one column}}
  %r = tile.strided_rows %i, %i, %i : tensor<8x2xi64>
  return
}

// -----

func.func @f(%t: memref<?xi64>, %i: index) {
  // expected-error@+1 {{'tile.paged_rows' op table has type 'memref<?xi64>'; a page table holds i32 page ids}}
  %r = tile.paged_rows %t[%i] from %i count %i page 16 offset %i strides %i, %i : memref<?xi64>, tensor<8x1xi64>
  return
}

// -----

func.func @f(%t: memref<?xi32>, %i: index) {
  // expected-error@+1 {{'tile.paged_rows' op page size is 0; it must be 1 or more}}
  %r = tile.paged_rows %t[%i] from %i count %i page 0 offset %i strides %i, %i : memref<?xi32>, tensor<8x1xi64>
  return
}

// -----

func.func @f(%a: tensor<8x16xf32>, %b: tensor<8x4xf32>, %c: tensor<8x4xf32>) {
  // expected-error@+1 {{'tile.mma' op a has 16 columns and b 8 along the reduction; they must agree}}
  %m = tile.mma %a, %b, %c : tensor<8x16xf32>, tensor<8x4xf32>, tensor<8x4xf32>
  return
}

// -----

func.func @f(%a: tensor<8x16xf32>, %b: tensor<16x4xf32>, %c: tensor<8x8xf32>) {
  // expected-error@+1 {{'tile.mma' op c is 8x8; the product is 8x4}}
  %m = tile.mma %a, %b, %c : tensor<8x16xf32>, tensor<16x4xf32>, tensor<8x8xf32>
  return
}

// -----

func.func @f(%a: tensor<8x16xf16>, %b: tensor<16x4xf16>, %c: tensor<8x4xf16>) {
  // expected-error@+1 {{'tile.mma' op accumulates in 'tensor<8x4xf16>'; f32 is wanted}}
  %m = tile.mma %a, %b, %c : tensor<8x16xf16>, tensor<16x4xf16>, tensor<8x4xf16>
  return
}

// -----

func.func @f(%a: tensor<8x16xf16>, %b: tensor<16x4xbf16>, %c: tensor<8x4xf32>) {
  // expected-error@+1 {{'tile.mma' op multiplies 'f16' by 'bf16'; both must be the same float type}}
  %m = tile.mma %a, %b, %c : tensor<8x16xf16>, tensor<16x4xbf16>, tensor<8x4xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.reduce' op combines nothing; use max or sum}}
  %m = tile.reduce none %s : tensor<8x16xf32> -> tensor<8x1xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.reduce_columns' op result has type 'tensor<8x1xf32>'; one 'f32' for each of 16 columns is wanted}}
  %m = tile.reduce_columns max %s : tensor<8x16xf32> -> tensor<8x1xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.map' op has 1 results and 2 combiners}}
  %m = tile.map(%s : tensor<8x16xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    tile.yield %x : f32
  } combine [none, sum] -> tensor<8x16xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>, %t: tensor<4x1xf32>) {
  // expected-error@+1 {{'tile.map' op input 'tensor<4x1xf32>' does not broadcast to 8x16}}
  %m = tile.map(%s, %t : tensor<8x16xf32>, tensor<4x1xf32>) {
  ^bb0(%x: f32, %y: f32, %r: i32, %c: i32):
    tile.yield %x : f32
  } -> tensor<8x16xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.map' op result 0 has type 'tensor<8x16xf32>'; 8x1 is wanted}}
  %m = tile.map(%s : tensor<8x16xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    tile.yield %x : f32
  } combine [sum] -> tensor<8x16xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.map' op region has 1 arguments; 1 elements, the row and the column are wanted}}
  %m = tile.map(%s : tensor<8x16xf32>) {
  ^bb0(%x: f32):
    tile.yield %x : f32
  } -> tensor<8x16xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.map' op region argument 1 is 'index'; 'i32' is wanted}}
  %m = tile.map(%s : tensor<8x16xf32>) {
  ^bb0(%x: f32, %r: index, %c: i32):
    tile.yield %x : f32
  } -> tensor<8x16xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.map' op yields 2 values for 1 results}}
  %m = tile.map(%s : tensor<8x16xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    tile.yield %x, %x : f32, f32
  } -> tensor<8x16xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.map' op yields 'i32' for result 0 of type 'tensor<8x16xf32>'}}
  %m = tile.map(%s : tensor<8x16xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    tile.yield %r : i32
  } -> tensor<8x16xf32>
  return
}

// -----

func.func @f(%s: tensor<64x16xf32>, %r: index) {
  // expected-error@+1 {{'tile.fold' op takes 3 of 16 rows; a divisor is wanted}}
  %m = tile.fold sum %s slices 4 rows(%r) : tensor<64x16xf32> -> tensor<3x16xf32>
  return
}

// -----

func.func @f(%s: tensor<64x16xf32>) {
  // expected-error@+1 {{'tile.fold' op result has type 'tensor<4x16xf32>'; 16 or 64 rows like the operand's are wanted}}
  %m = tile.fold sum %s slices 4 : tensor<64x16xf32> -> tensor<4x16xf32>
  return
}

// -----

func.func @f(%a: tensor<8x16xf32>, %b: tensor<16x6xf32>, %c: tensor<8x6xf32>) {
  // expected-error@+1 {{'tile.mma' op cuts 8 rows of c and 16 rows of b into 3 slices; both must be multiples}}
  %m = tile.mma %a, %b, %c slices 3 : tensor<8x16xf32>, tensor<16x6xf32>, tensor<8x6xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.reduce_columns' op cuts 8 rows into 3 slices; a divisor is wanted}}
  %m = tile.reduce_columns max %s slices 3 : tensor<8x16xf32> -> tensor<48x1xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.fold' op cuts 8 rows into 3 slices; a divisor is wanted}}
  %m = tile.fold sum %s slices 3 : tensor<8x16xf32> -> tensor<8x16xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.fold' op combines nothing; use max or sum}}
  %m = tile.fold none %s slices 2 : tensor<8x16xf32> -> tensor<8x16xf32>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  %m = tile.map(%s : tensor<8x16xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    tile.yield %x : f32
  // expected-error@+1 {{unknown combiner 'product'; none, max or sum is wanted}}
  } combine [product] -> tensor<8x1xf32>
  return
}

// -----

// expected-error@+1 {{axis of extent 0; 1 or more is wanted}}
func.func @f(%s: tensor<8x16xf32, #tile.fragment<registers [0 rows 1], lanes [], warps []>>) {
  return
}

// -----

// expected-error@+1 {{'depth' is no axis; rows, columns or copies is}}
func.func @f(%s: tensor<8x16xf32, #tile.fragment<registers [2 depth 1], lanes [], warps []>>) {
  return
}

// -----

func.func @f(%b: memref<?xf32>, %r: tensor<8x1xi64>, %s: memref<2x8x16xf32>, %i: index) {
  // expected-error@+1 {{'tile.copy_async' op copies into 'memref<2x8x16xf32>'; a buffer of static shape in memory space #tile.shared is wanted}}
  %t = tile.copy_async %b[%r], %s[%i] : memref<?xf32>, tensor<8x1xi64>, memref<2x8x16xf32>
  return
}

// -----

func.func @f(%b: memref<?xf32>, %r: tensor<4x1xi64>, %s: memref<2x8x16xf32, #tile.shared<pitch = 64, span = 8>>, %i: index) {
  // expected-error@+1 {{'tile.copy_async' op has addresses of 4 rows for a buffer of 8}}
  %t = tile.copy_async %b[%r], %s[%i] : memref<?xf32>, tensor<4x1xi64>, memref<2x8x16xf32, #tile.shared<pitch = 64, span = 8>>
  return
}

// -----

func.func @f(%b: memref<?xf16>, %r: tensor<8x1xi64>, %s: memref<2x8x16xf32, #tile.shared<pitch = 64, span = 8>>, %i: index) {
  // expected-error@+1 {{'tile.copy_async' op copies 'f16' into 'f32'; a copy does not convert}}
  %t = tile.copy_async %b[%r], %s[%i] : memref<?xf16>, tensor<8x1xi64>, memref<2x8x16xf32, #tile.shared<pitch = 64, span = 8>>
  return
}

// -----

func.func @f(%s: tensor<8x16xf32>) {
  // expected-error@+1 {{'tile.convert' op makes 'tensor<8x16xf16>' of 'tensor<8x16xf32>'; only the layout may change}}
  %t = tile.convert %s : tensor<8x16xf32> -> tensor<8x16xf16>
  return
}

// -----

func.func @apart(%m: memref<?xf32>, %n: index, %r: tensor<8x1xi64>) {
  // expected-error@+1 {{'tile.load' op makes 16 rows of 3 slices; a divisor is wanted}}
  %a = tile.load %m[%r] slices 3 apart(%n) : memref<?xf32>, tensor<8x1xi64> -> tensor<16x8xf32>
  return
}

// -----

func.func @apart_rows(%m: memref<?xf32>, %n: index, %r: tensor<8x1xi64>) {
  // expected-error@+1 {{'tile.load' op rows has type 'tensor<8x1xi64>'; a tile of 32 rows needs tensor<16x1xi64>}}
  %a = tile.load %m[%r] slices 2 apart(%n) : memref<?xf32>, tensor<8x1xi64> -> tensor<32x8xf32>
  return
}

// -----

func.func @prefetch_apart(%m: memref<?xf32>, %r: tensor<8x1xi64>) {
  // expected-error@+1 {{'tile.prefetch' op has 2 slices; it takes 1, or more with how far they lie apart}}
  tile.prefetch %m[%r] columns 8 slices 2 : memref<?xf32>, tensor<8x1xi64>
  return
}
