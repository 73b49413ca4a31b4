#include "ctl/size_arg.h"
#include "base/text.h"
#include <string.h>

static bool unit_of(const char *unit, uint64_t *out)
{
    static const char letters[] = "KMGT";
    uint64_t base = 1000, value = 1;
    if (!*unit || strcmp(unit, "B") == 0) {
        *out = 1;
        return true;
    }
    const char *at = strchr(letters, unit[0] == 'k' ? 'K' : unit[0]);
    const char *rest = unit + 1;
    if (!at)
        return false;
    if (*rest == 'i') {
        base = 1024;
        rest++;
    }
    if (*rest && strcmp(rest, "B") != 0)
        return false;
    for (const char *step = letters; step <= at; step++)
        value *= base;
    *out = value;
    return true;
}

bool size_arg_parse(const char *text, uint64_t *out)
{
    size_t digits = strspn(text, "0123456789");
    char number[32];
    uint64_t value, unit;
    if (digits == 0 || digits >= sizeof number)
        return false;
    memcpy(number, text, digits);
    number[digits] = '\0';
    if (!text_to_u64(number, 0, UINT64_MAX, &value) || !unit_of(text + digits, &unit) ||
        value > UINT64_MAX / unit)
        return false;
    *out = value * unit;
    return true;
}
