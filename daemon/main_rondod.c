/* main_rondod.c - rondod's command line: dev, serve, ca. */
#include "base/log.h"
#include "base/mem.h"
#include "daemon/config.h"
#include "daemon/rondod.h"
#include "rpc/ca.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAIN_USAGE_ERROR 2

static const char main_usage[] =
    "rondod - schedules continual-training jobs onto node agents\n"
    "\n"
    "  rondod dev    everything in one directory: private database, certificates, agents\n"
    "  rondod serve  on a given database, with given certificates\n"
    "  rondod ca     the private certificate authority: init, issue, revoke\n"
    "\n"
    "Each has its own --help. Start with: rondod dev --agents 1\n";

static int main_complain(const struct option_page *page, const char *problems)
{
    fprintf(stderr, "%s\ntry %s --help\n", problems, page->program);
    return MAIN_USAGE_ERROR;
}

static enum log_level main_level(const char *name)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};

    for (size_t i = 0; i < COUNT_OF(levels); i++)
        if (strcmp(levels[i], name) == 0)
            return (enum log_level)i;
    return LOG_INFO;
}

static int main_daemon(const struct option_page *page, bool dev, int argc, char **argv)
{
    struct config config;
    struct text problems;
    int at = 0, code = MAIN_USAGE_ERROR;

    text_init(&problems, 0);
    option_defaults(page->rows, &config);
    enum status st = option_flags(page, &config, argc, argv, &at, &problems);
    if (st == STATUS_OK)
        st = config_check(&config, dev, &problems);
    if (st == STATUS_OK && at < argc) {
        text_addf(&problems, "%s: nothing of that kind is expected here\n", argv[at]);
        st = STATUS_INVALID;
    }
    if (st == STATUS_OK) {
        log_setup("rondod", main_level(config.log_level), 2);
        umask(077);
        code = rondod_run(&config, dev);
    } else {
        main_complain(page, text_get(&problems));
    }
    config_fini(&config);
    text_fini(&problems);
    return code;
}

/* --- rondod ca */

static int main_ca_report(enum status st, const struct error *err, const char *done)
{
    if (st == STATUS_OK)
        printf("%s\n", done);
    else
        fprintf(stderr, "rondod ca: %s\n", err->text);
    return st == STATUS_OK ? 0 : 1;
}

/* "role=submitter,project=nlp,project=vision" */
static char *main_ca_unit(const struct config_ca *config)
{
    struct text unit;

    if (strcmp(config->kind, "user") != 0)
        return NULL;
    text_init(&unit, 0);
    text_addf(&unit, "role=%s", config->role);
    for (size_t i = 0; i < config->projects.count; i++)
        text_addf(&unit, ",project=%s", config->projects.items[i]);
    if (strcmp(config->role, "admin") == 0 && config->projects.count == 0)
        text_add(&unit, ",project=*");
    return text_take(&unit);
}

static int main_ca_issue(const struct config_ca *config)
{
    SCOPED_TEXT char *unit = main_ca_unit(config);
    SCOPED_TEXT char *done = NULL;
    const char *file = config->file && *config->file       ? config->file
                       : strcmp(config->kind, "user") == 0 ? "ctl"
                                                           : config->kind;
    struct ca_request request = {.kind = config->kind,
                                 .name = config->name,
                                 .unit = unit,
                                 .hosts = (const char *const *)config->hosts.items,
                                 .hosts_count = config->hosts.count,
                                 .days = config->days};
    struct error err = {0};

    if (!config->name || !*config->name || !config->out || !*config->out)
        return main_complain(&config_page_ca, "issue: --name and --out are needed");
    done = mem_printf("%s/%s.pem %s/%s.key %s/ca.pem", config->out, file, config->out, file,
                      config->out);
    return main_ca_report(ca_issue(config->ca, &request, config->out, file, &err), &err, done);
}

static int main_ca_init(const struct config_ca *config)
{
    SCOPED_TEXT char *done = mem_printf("%s/ca.pem %s/ca.key", config->ca, config->ca);
    struct error err = {0};

    return main_ca_report(ca_init(config->ca, config->cluster, &err), &err, done);
}

static int main_ca_revoke(const struct config_ca *config)
{
    SCOPED_TEXT char *done = mem_printf("%s/crl.pem %s/crl", config->ca, config->ca);
    struct error err = {0};

    if (!config->cert || !*config->cert)
        return main_complain(&config_page_ca, "revoke: --cert is needed");
    return main_ca_report(ca_revoke(config->ca, config->cert, &err), &err, done);
}

static int main_ca(int argc, char **argv)
{
    static const struct {
        const char *verb;
        int (*run)(const struct config_ca *config);
    } verbs[] = {{"init", main_ca_init}, {"issue", main_ca_issue}, {"revoke", main_ca_revoke}};
    int (*run)(const struct config_ca *config) = NULL;
    bool is_verb = argc > 1 && argv[1][0] != '-';
    struct config_ca config;
    struct text problems;
    int at = 0, code;

    for (size_t i = 0; is_verb && i < COUNT_OF(verbs); i++)
        if (strcmp(argv[1], verbs[i].verb) == 0)
            run = verbs[i].run;
    text_init(&problems, 0);
    option_defaults(config_ca_rows, &config);
    if (is_verb) {
        argc--;
        argv++;
    }
    enum status st = option_flags(&config_page_ca, &config, argc, argv, &at, &problems);
    umask(077);
    if (st != STATUS_OK || at < argc)
        code = main_complain(&config_page_ca,
                             problems.len ? text_get(&problems) : "unexpected argument");
    else if (!run)
        code = main_complain(&config_page_ca, "init, issue or revoke is needed");
    else
        code = run(&config);
    option_fini(config_ca_rows, &config);
    text_fini(&problems);
    return code;
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";

    if (strcmp(verb, "dev") == 0)
        return main_daemon(&config_page_dev, true, argc - 1, argv + 1);
    if (strcmp(verb, "serve") == 0)
        return main_daemon(&config_page_serve, false, argc - 1, argv + 1);
    if (strcmp(verb, "ca") == 0)
        return main_ca(argc - 1, argv + 1);
    if (strcmp(verb, "--version") == 0 || strcmp(verb, "-V") == 0) {
        printf("rondod %s\n", RONDO_VERSION);
        return 0;
    }
    bool asked = strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0;
    fputs(main_usage, asked ? stdout : stderr);
    return asked ? 0 : MAIN_USAGE_ERROR;
}
