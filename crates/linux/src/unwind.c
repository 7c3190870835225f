// SPDX-License-Identifier: MIT OR Apache-2.0
// The unwinder, for libraries that programs have preloaded: each function loads libgcc_s and goes on there.
//
// Why. libgcc_s would be one library more in each program that starts, and its constructor asks the processor
// what it is, which takes long in a virtual machine. Few programs unwind. The C library does the same.
//
// When. Unwinding takes no lock of the dynamic linker, and neither may we in it. So a thread that cancels
// another one calls wakeful_unwind_prepare first: the C library loads libgcc_s there as well.
// pthread_exit and exceptions begin in the thread that unwinds.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// Nobody else is to call what is here. (unwind.h says otherwise, so it is not included.)
#define HIDDEN __attribute__((visibility("hidden")))

struct function {
	const char *name;
	void *address;
};

static void *find(struct function *function)
{
	void *address = __atomic_load_n(&function->address, __ATOMIC_RELAXED);

	if (!address) {
		// It stays loaded.
		void *library = dlopen("libgcc_s.so.1", RTLD_LAZY);

		address = library ? dlsym(library, function->name) : NULL;
		__atomic_store_n(&function->address, address, __ATOMIC_RELAXED);
	}
	return address;
}

// Without libgcc_s, nobody can have what these are called with.
#define FORWARD(type, name, parameters, arguments, otherwise)                                                \
	static struct function at_##name = { #name, NULL };                                                  \
	HIDDEN type name parameters;                                                                         \
	HIDDEN type name parameters                                                                          \
	{                                                                                                    \
		__typeof__(name) *real = find(&at_##name);                                                   \
		return real ? real arguments : otherwise;                                                    \
	}

struct exception;
struct context;
// _Unwind_Reason_Code, of which two, and _Unwind_Trace_Fn.
enum code { END_OF_STACK = 5, CONTINUE_UNWIND = 8 };
typedef enum code trace(struct context *, void *);

// What C compiled with -fexceptions calls.
FORWARD(void, _Unwind_Resume, (struct exception * e), (e), abort())
FORWARD(enum code, __gcc_personality_v0,
	(int version, int actions, uint64_t class, struct exception *e, struct context *c),
	(version, actions, class, e, c), CONTINUE_UNWIND)

// What Rust's standard library calls.
FORWARD(enum code, _Unwind_RaiseException, (struct exception * e), (e), END_OF_STACK)
FORWARD(void, _Unwind_DeleteException, (struct exception * e), (e), (void)0)
FORWARD(enum code, _Unwind_Backtrace, (trace * each, void *data), (each, data), END_OF_STACK)
FORWARD(void *, _Unwind_GetLanguageSpecificData, (struct context * c), (c), NULL)
FORWARD(void *, _Unwind_FindEnclosingFunction, (void *at), (at), NULL)
FORWARD(uintptr_t, _Unwind_GetRegionStart, (struct context * c), (c), 0)
FORWARD(uintptr_t, _Unwind_GetTextRelBase, (struct context * c), (c), 0)
FORWARD(uintptr_t, _Unwind_GetDataRelBase, (struct context * c), (c), 0)
FORWARD(uintptr_t, _Unwind_GetIP, (struct context * c), (c), 0)
FORWARD(uintptr_t, _Unwind_GetIPInfo, (struct context * c, int *before), (c, before), 0)
FORWARD(uintptr_t, _Unwind_GetCFA, (struct context * c), (c), 0)
FORWARD(void, _Unwind_SetGR, (struct context * c, int index, uintptr_t value), (c, index, value), (void)0)
FORWARD(void, _Unwind_SetIP, (struct context * c, uintptr_t value), (c, value), (void)0)

HIDDEN void wakeful_unwind_prepare(void);

HIDDEN void wakeful_unwind_prepare(void)
{
	find(&at__Unwind_Resume);
	find(&at___gcc_personality_v0);
}
