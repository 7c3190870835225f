// SPDX-License-Identifier: MIT OR Apache-2.0
//! `__kmpc_atomic_*`: what older compilers call for `omp atomic`. Those here are the ones that Intel's MKL
//! calls, and their kin.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::Ident;

macro_rules! atomics {
    ($($name:ident $type:ty, $atomic:ty, $from:expr, $to:expr, $operate:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(_: *const Ident, _: i32, variable: *mut $type, operand: $type) {
                // SAFETY: the program's variable, which all threads change by such functions.
                let word = unsafe { <$atomic>::from_ptr(variable.cast()) };
                let operate: fn($type, $type) -> $type = $operate;
                // ORDER: SeqCst: the program may rely on `seq_cst`, and the function does not know.
                let _ = word.fetch_update(SeqCst, SeqCst, |bits| Some($to(operate($from(bits), operand))));
            }
        )*
    };
}

atomics! {
    __kmpc_atomic_fixed4_add i32, AtomicU32, |bits: u32| bits as i32, |value: i32| value as u32, i32::wrapping_add;
    __kmpc_atomic_fixed4_sub i32, AtomicU32, |bits: u32| bits as i32, |value: i32| value as u32, i32::wrapping_sub;
    __kmpc_atomic_fixed4_mul i32, AtomicU32, |bits: u32| bits as i32, |value: i32| value as u32, i32::wrapping_mul;
    __kmpc_atomic_fixed4_div i32, AtomicU32, |bits: u32| bits as i32, |value: i32| value as u32, i32::wrapping_div;
    __kmpc_atomic_fixed8_add i64, AtomicU64, |bits: u64| bits as i64, |value: i64| value as u64, i64::wrapping_add;
    __kmpc_atomic_fixed8_sub i64, AtomicU64, |bits: u64| bits as i64, |value: i64| value as u64, i64::wrapping_sub;
    __kmpc_atomic_fixed8_mul i64, AtomicU64, |bits: u64| bits as i64, |value: i64| value as u64, i64::wrapping_mul;
    __kmpc_atomic_fixed8_div i64, AtomicU64, |bits: u64| bits as i64, |value: i64| value as u64, i64::wrapping_div;
    __kmpc_atomic_float4_add f32, AtomicU32, f32::from_bits, f32::to_bits, |a, b| a + b;
    __kmpc_atomic_float4_sub f32, AtomicU32, f32::from_bits, f32::to_bits, |a, b| a - b;
    __kmpc_atomic_float4_mul f32, AtomicU32, f32::from_bits, f32::to_bits, |a, b| a * b;
    __kmpc_atomic_float4_div f32, AtomicU32, f32::from_bits, f32::to_bits, |a, b| a / b;
    __kmpc_atomic_float8_add f64, AtomicU64, f64::from_bits, f64::to_bits, |a, b| a + b;
    __kmpc_atomic_float8_sub f64, AtomicU64, f64::from_bits, f64::to_bits, |a, b| a - b;
    __kmpc_atomic_float8_mul f64, AtomicU64, f64::from_bits, f64::to_bits, |a, b| a * b;
    __kmpc_atomic_float8_div f64, AtomicU64, f64::from_bits, f64::to_bits, |a, b| a / b;
}
