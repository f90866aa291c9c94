//! Calls silu of the C++ backend from Rust: tensor_ops/abi.h by hand, as far as it takes.
//!
//!     libs=$(python -m tensor_ops_cpp --libdir)
//!     rustc silu.rs -L "$libs" -C link-arg=-Wl,-rpath,"$libs"
#![allow(dead_code)] // members that C reads
use std::ffi::{c_char, c_void, CStr};
use std::ptr::{null, null_mut};

type Error = [c_char; 1024];
#[repr(C)]
struct Array(*mut f32, i32, i32, *const i64, *const i64, i32, i32);
#[repr(C)]
struct Call(
    usize,
    *const Array,
    *const Array,
    *const f64,
    [i32; 5],
    *mut c_void,
);
#[repr(C)]
struct Op {
    name: *const c_char, // the first member is all that is read here
}
#[repr(C)]
struct Backend {
    size: usize,
    abi_version: u32,
    texts: [*const c_char; 4],
    functions: [*const c_void; 3],
    ops: *const *const Op,
    op_count: i32,
    call: extern "C" fn(*const Op, *const Call, *mut Error) -> i32,
}

#[link(name = "tensor_ops_cpp")]
extern "C" {
    fn tensor_ops_cpp_backend(version: u32, backend: *mut *const Backend, e: *mut Error) -> i32;
}

fn main() {
    let (mut x, mut y, shape) = ([-1.0, 0.0, 1.0], [0.0; 3], [3]);
    let vector = |data: &mut [f32; 3]| Array(data.as_mut_ptr(), 0, 1, shape.as_ptr(), null(), 1, 0);
    let (input, output) = (vector(&mut x), vector(&mut y));
    // One input, one output, no scalars, the first choice, as many threads as pay.
    let counts = [1, 1, 0, 0, 0];
    let call = Call(
        std::mem::size_of::<Call>(),
        &input,
        &output,
        null(),
        counts,
        null_mut(),
    );
    let (mut backend, mut error) = (null(), [0; 1024]);
    let status = unsafe {
        assert_eq!(tensor_ops_cpp_backend(1, &mut backend, &mut error), 0);
        let ops = std::slice::from_raw_parts((*backend).ops, (*backend).op_count as usize);
        let silu = ops
            .iter()
            .find(|op| CStr::from_ptr((***op).name).to_bytes() == b"silu");
        ((*backend).call)(*silu.unwrap(), &call, &mut error)
    };
    assert_eq!(status, 0, "{:?}", unsafe { CStr::from_ptr(error.as_ptr()) });
    println!("silu of {x:?} is {y:?}");
}
