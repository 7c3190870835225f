// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions of exec.rs that take the program's words one by one. As the C library's, they put them on the stack.
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

int wakeful_execl(const char *path, const char *word, ...);
int wakeful_execle(const char *path, const char *word, ...);
int wakeful_execlp(const char *name, const char *word, ...);

// The words up to the null, in an array of the caller's; what comes after them may follow.
#define WORDS(last, words, rest)                                                                                       \
	va_list rest;                                                                                                  \
	ptrdiff_t count = 1;                                                                                           \
	if (last) {                                                                                                    \
		va_start(rest, last);                                                                                  \
		while (va_arg(rest, const char *))                                                                     \
			if (count++ == INT_MAX) {                                                                      \
				va_end(rest);                                                                          \
				errno = E2BIG;                                                                         \
				return -1;                                                                             \
			}                                                                                              \
		va_end(rest);                                                                                          \
		count++;                                                                                               \
	}                                                                                                              \
	char *words[count];                                                                                            \
	words[0] = (char *)last;                                                                                       \
	va_start(rest, last);                                                                                          \
	for (ptrdiff_t at = 1; at < count; at++)                                                                       \
		words[at] = va_arg(rest, char *);

int wakeful_execl(const char *path, const char *word, ...)
{
	WORDS(word, words, rest)
	va_end(rest);
	return execv(path, words);
}

int wakeful_execle(const char *path, const char *word, ...)
{
	WORDS(word, words, rest)
	char *const *list = va_arg(rest, char *const *);
	va_end(rest);
	return execve(path, words, list);
}

int wakeful_execlp(const char *name, const char *word, ...)
{
	WORDS(word, words, rest)
	va_end(rest);
	return execvp(name, words);
}
