/* args.h - puts a command line into the order that option_flags reads: options, "--", operands.
 *
 * Any thread; pure. People write options behind operands too, and one-letter forms (-f for
 * --follow). A letter is known where the verb has the option that it stands for. */
#pragma once
#include "base/option.h"

/* *out holds argc + 2 pointers into argv or static text, NULL last; free it with mem_free. False:
 * problems says what is wrong. */
bool args_arrange(const struct option *rows, int argc, char **argv, char ***out, int *out_argc,
                  struct text *problems);
/* The one-letter form of an option, or 0. */
char args_letter(const char *name);
