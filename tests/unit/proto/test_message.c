/* test_message.c - copies are deep. */
#include "proto/pb.h"
#include "proto/text/message.h"
#include "tests/unit/unit.h"

static void a_copy_owns_everything(void **state)
{
    Pb__Reason reason = PB__REASON__INIT;
    char text[] = "why";
    (void)state;
    reason.text = text;
    reason.has_code = 1;
    reason.code = PB__REASON__CODE__HANG;
    Pb__Reason *copy = (Pb__Reason *)message_copy(&reason.base);
    text[0] = 'x';
    assert_string_equal(copy->text, "why");
    assert_int_equal(copy->code, PB__REASON__CODE__HANG);
    protobuf_c_message_free_unpacked(&copy->base, NULL);
    assert_null(message_copy(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_copy_owns_everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
