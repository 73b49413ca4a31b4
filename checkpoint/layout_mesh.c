/* layout_mesh.c - see layout_mesh.h. */
#include "checkpoint/layout_mesh.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"

#include "checkpoint/layout_table.h"

#define LAYOUTS_KNOWN 64

uint32_t layout_mesh_world(const struct layout_mesh *mesh)
{
    uint32_t world = 1;

    for (uint32_t a = 0; a < mesh->axes; a++)
        world *= mesh->axis[a].size;
    return world;
}

/* --- texts */

static bool take_number(const char **at, uint64_t most, uint64_t *out)
{
    uint64_t number = 0;
    const char *from = *at;

    for (; **at >= '0' && **at <= '9' && number <= most; ++*at)
        number = number * 10 + (uint64_t)(**at - '0');
    *out = number;
    return *at > from && number <= most;
}

/* How many bytes of it can be an axis's name. */
static size_t axis_length(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-");
}

static uint32_t find_axis(const struct layout_mesh *mesh, const char *name, size_t len)
{
    for (uint32_t a = 0; a < mesh->axes; a++)
        if (strlen(mesh->axis[a].name) == len && memcmp(mesh->axis[a].name, name, len) == 0)
            return a;
    return UINT32_MAX;
}

enum status layout_mesh_parse(const char *text, struct layout_mesh *out, struct error *err)
{
    struct layout_mesh mesh = {0};
    const char *at = text;
    uint64_t world = 1, size;

    for (;; at++) {
        size_t len = axis_length(at);
        const char *name = at;
        if (len == 0 || len > LAYOUT_MESH_NAME_MAX || mesh.axes == LAYOUT_MESH_AXES)
            return error_set(err, STATUS_INVALID,
                             "mesh: up to %d axes as in data=2,tensor=4 are expected",
                             LAYOUT_MESH_AXES);
        if (find_axis(&mesh, name, len) != UINT32_MAX)
            return error_set(err, STATUS_INVALID, "mesh: axis %.*s is there twice", (int)len, name);
        at += len;
        if (*at++ != '=' || !take_number(&at, LAYOUT_WORLD_MAX, &size) || size == 0)
            return error_set(err, STATUS_INVALID, "mesh: axis %.*s has no size of 1 to %u",
                             (int)len, name, LAYOUT_WORLD_MAX);
        memcpy(mesh.axis[mesh.axes].name, name, len);
        mesh.axis[mesh.axes++].size = (uint32_t)size;
        world *= size;
        if (world > LAYOUT_WORLD_MAX)
            return error_set(err, STATUS_INVALID, "mesh: more than %u ranks", LAYOUT_WORLD_MAX);
        if (*at == '\0')
            break;
        if (*at != ',')
            return error_set(err, STATUS_INVALID, "mesh: a comma is expected before %s", at);
    }
    *out = mesh;
    return STATUS_OK;
}

enum status layout_mesh_rule_parse(const struct layout_mesh *mesh, const char *text,
                                   struct layout_mesh_rule *out, struct error *err)
{
    const char *at = strrchr(text, '=');
    struct layout_mesh_rule rule = {.pattern = text, .cut = LAYOUT_RULE_CHUNK};

    if (!at || at == text || at - text > LAYOUT_NAME_MAX)
        return error_set(err, STATUS_INVALID, "rule: NAME=DIM:AXIS,... is expected");
    rule.pattern_len = (size_t)(at++ - text);
    memset(rule.dim, LAYOUT_MESH_NO_DIM, sizeof rule.dim);
    while (*at >= '0' && *at <= '9') {
        uint64_t dim;
        if (!take_number(&at, LAYOUT_DIMS_MAX - 1, &dim) || *at++ != ':')
            return error_set(err, STATUS_INVALID,
                             "rule: DIM:AXIS with a dim of 0 to %d is expected",
                             LAYOUT_DIMS_MAX - 1);
        size_t len = axis_length(at);
        uint32_t axis = find_axis(mesh, at, len);
        if (axis == UINT32_MAX)
            return error_set(err, STATUS_INVALID, "rule: the mesh has no axis %.*s",
                             (int)(len < 64 ? len : 64), at);
        if (rule.dim[axis] != LAYOUT_MESH_NO_DIM)
            return error_set(err, STATUS_INVALID, "rule: axis %.*s is there twice", (int)len, at);
        rule.dim[axis] = (uint8_t)dim;
        at += len;
        if (*at == ',' && at[1] >= '0' && at[1] <= '9')
            at++;
    }
    if (strcmp(at, " balanced") == 0)
        rule.cut = LAYOUT_RULE_BALANCED;
    else if (*at)
        return error_set(err, STATUS_INVALID,
                         "rule: DIM:AXIS or \" balanced\" is expected here: %s", at);
    *out = rule;
    return STATUS_OK;
}

/* '*' stands for any run of bytes: goes back to the last star when the rest does not match. */
static bool matches(const struct layout_mesh_rule *rule, const char *name, size_t len)
{
    size_t at = 0, star = SIZE_MAX, back = 0;

    for (size_t i = 0; i < len;) {
        if (at < rule->pattern_len && rule->pattern[at] == '*') {
            star = at++;
            back = i;
        } else if (at < rule->pattern_len && rule->pattern[at] == name[i]) {
            at++;
            i++;
        } else if (star != SIZE_MAX) {
            at = star + 1;
            i = ++back;
        } else {
            return false;
        }
    }
    while (at < rule->pattern_len && rule->pattern[at] == '*')
        at++;
    return at == rule->pattern_len;
}

/* --- what is cut */

/* Does the layout cut that dim? Ranges: the outermost. */
static bool is_cut(const struct layout_class *class, const struct layout_tensor *tensor,
                   uint32_t dim)
{
    struct layout_box box;

    if (class->kind == LAYOUT_FLAT)
        return dim == 0;
    for (uint32_t item = 0; item < class->items && class->kind == LAYOUT_BOXES; item++)
        if (layout_class_box(class, item, &box) && box.size[dim] < tensor->shape[dim])
            return true;
    if (class->kind == LAYOUT_BOXES)
        return false;
    const uint64_t *cuts = class->cuts + class->cuts_at[dim];
    for (uint32_t i = 0; i <= layout_class_intervals(class, dim); i++)
        if (cuts[i] > 0 && cuts[i] < tensor->shape[dim])
            return true;
    return false;
}

static void keep_dims(const struct layout_mesh *mesh, const struct layout_class *class,
                      const struct layout_tensor *tensor, struct layout_mesh_rule *out)
{
    uint8_t dims[LAYOUT_DIMS_MAX];
    uint32_t count = 0, next = 0;

    for (uint32_t d = 0; d < tensor->dims; d++)
        if (is_cut(class, tensor, d))
            dims[count++] = (uint8_t)d;
    for (uint32_t a = 0; a < mesh->axes; a++) {
        if (count == 0 || strcmp(mesh->axis[a].name, "data") == 0)
            continue;
        out->dim[a] = dims[next < count ? next : count - 1];
        next++;
    }
}

static enum status rule_of(const struct layout_mesh *mesh, const struct layout_mesh_rule *rules,
                           size_t count, const struct layout_table *like, uint32_t tensor_index,
                           struct layout_mesh_rule *out, struct error *err)
{
    const struct layout_tensor *tensor = &like->tensors[tensor_index];
    char shown[LAYOUT_SHOWN];

    memset(out->dim, LAYOUT_MESH_NO_DIM, sizeof out->dim);
    out->cut = LAYOUT_RULE_CHUNK;
    for (size_t i = 0; i < count; i++) {
        if (!matches(&rules[i], tensor->name, tensor->name_len))
            continue;
        *out = rules[i];
        for (uint32_t a = 0; a < mesh->axes; a++)
            if (out->dim[a] != LAYOUT_MESH_NO_DIM && out->dim[a] >= tensor->dims)
                return error_set(err, STATUS_INVALID,
                                 "tensor %s: a rule cuts dim %u, it has %" PRIu32,
                                 layout_name_shown(tensor->name, tensor->name_len, shown),
                                 out->dim[a], tensor->dims);
        return STATUS_OK;
    }
    if (layout_tensor_elements(tensor) > 0)
        keep_dims(mesh, layout_table_class(like, tensor_index), tensor, out);
    return STATUS_OK;
}

/* --- grids */

/* The cell of a rank: axes that cut the same dim count together, the last fastest. */
static uint32_t cell_of(const struct layout_mesh *mesh, const struct layout_mesh_rule *rule,
                        const uint32_t *parts, uint32_t dims, uint32_t rank)
{
    uint32_t place[LAYOUT_DIMS_MAX] = {0}, stride = layout_mesh_world(mesh), cell = 0;

    for (uint32_t a = 0; a < mesh->axes; a++) {
        stride /= mesh->axis[a].size;
        uint32_t dim = rule->dim[a], at = rank / stride % mesh->axis[a].size;
        if (dim != LAYOUT_MESH_NO_DIM)
            place[dim] = place[dim] * mesh->axis[a].size + at;
    }
    for (uint32_t d = 0; d < dims; d++)
        cell = cell * parts[d] + place[d];
    return cell;
}

/* at: cells + 1, zeroed; ranks: world. */
static void seat_ranks(const struct layout_mesh *mesh, const struct layout_mesh_rule *rule,
                       const uint32_t *parts, struct layout_grid *grid, uint32_t cells,
                       uint32_t *at, uint32_t *ranks)
{
    uint32_t world = layout_mesh_world(mesh);

    for (uint32_t rank = 0; rank < world; rank++)
        at[cell_of(mesh, rule, parts, grid->dims, rank) + 1]++;
    for (uint32_t cell = 0; cell < cells; cell++)
        at[cell + 1] += at[cell];
    for (uint32_t rank = world; rank-- > 0;) /* fills each cell from its end, then puts it right */
        ranks[--at[cell_of(mesh, rule, parts, grid->dims, rank) + 1]] = rank;
    for (uint32_t cell = 0; cell < cells; cell++)
        at[cell] = at[cell + 1];
    at[cells] = world;
    grid->ranks_at = at;
    grid->ranks = ranks;
}

static enum status build_grid(const struct layout_mesh *mesh, const struct layout_mesh_rule *rule,
                              const struct layout_tensor *tensor, struct layout_build *build,
                              uint32_t *out, struct error *err)
{
    struct layout_grid grid = {.dims = tensor->dims};
    uint32_t parts[LAYOUT_DIMS_MAX], cells = 1, cuts_at = 0, world = layout_mesh_world(mesh);
    uint64_t unit = layout_tensor_unit(tensor);

    for (uint32_t d = 0; d < tensor->dims; d++)
        parts[d] = 1;
    for (uint32_t a = 0; a < mesh->axes; a++)
        if (rule->dim[a] != LAYOUT_MESH_NO_DIM) {
            parts[rule->dim[a]] *= mesh->axis[a].size;
            cells *= mesh->axis[a].size; /* no more than the world */
        }
    SCOPED(mem_free)
    void *memory = mem_array((size_t)world * 2 + 2 * LAYOUT_DIMS_MAX, sizeof(uint64_t));
    SCOPED(mem_free) void *at = mem_array((size_t)cells + 2, sizeof(uint32_t));
    SCOPED(mem_free) void *ranks = mem_array(world, sizeof(uint32_t));
    uint64_t *cuts = memory;
    for (uint32_t d = 0; d < tensor->dims; d++) {
        layout_rule_cuts(rule->cut, tensor->shape[d], d + 1 == tensor->dims && unit ? unit : 1,
                         parts[d], cuts + cuts_at);
        grid.cuts[d] = cuts + cuts_at;
        grid.counts[d] = parts[d] + 1;
        cuts_at += parts[d] + 1;
    }
    seat_ranks(mesh, rule, parts, &grid, cells, at, ranks);
    return layout_build_grid(build, &grid, out, err);
}

/* Layouts made last, so that tensors share them. */
struct known {
    struct layout_tensor tensor;
    struct layout_mesh_rule rule;
    uint32_t layout;
};

static bool is_known(const struct known *known, const struct layout_tensor *tensor,
                     const struct layout_mesh_rule *rule)
{
    return known->tensor.name && known->tensor.dims == tensor->dims &&
           dtype_bits(known->tensor.dtype) == dtype_bits(tensor->dtype) &&
           memcmp(known->tensor.shape, tensor->shape, sizeof tensor->shape) == 0 &&
           memcmp(known->rule.dim, rule->dim, sizeof rule->dim) == 0 &&
           known->rule.cut == rule->cut;
}

static enum status find_layout(const struct layout_mesh *mesh, const struct layout_mesh_rule *rule,
                               const struct layout_tensor *tensor, struct known *known,
                               struct layout_build *build, uint32_t *out, struct error *err)
{
    for (uint32_t i = 0; i < LAYOUTS_KNOWN; i++)
        if (is_known(&known[i], tensor, rule)) {
            *out = known[i].layout;
            return STATUS_OK;
        }
    enum status st = build_grid(mesh, rule, tensor, build, out, err);
    if (st == STATUS_OK)
        known[*out % LAYOUTS_KNOWN] = (struct known){*tensor, *rule, *out};
    return st;
}

static enum status add_tensors(const struct layout_mesh *mesh, const struct layout_mesh_rule *rules,
                               size_t count, const struct layout_table *like,
                               struct layout_build *build, struct error *err)
{
    SCOPED(mem_free) void *known = mem_array(LAYOUTS_KNOWN, sizeof(struct known));
    enum status st = STATUS_OK;

    for (uint32_t i = 0; i < like->tensors_count && st == STATUS_OK; i++) {
        struct layout_tensor tensor = like->tensors[i];
        struct layout_mesh_rule rule;
        st = rule_of(mesh, rules, count, like, i, &rule, err);
        if (layout_tensor_unit(&tensor) == 0)
            memset(rule.dim, LAYOUT_MESH_NO_DIM, sizeof rule.dim);
        if (st == STATUS_OK)
            st = find_layout(mesh, &rule, &tensor, known, build, &tensor.layout, err);
        if (st == STATUS_OK)
            st = layout_build_tensor(build, &tensor, err);
    }
    return st;
}

/* A name that was mistyped would be no rule at all. */
static enum status check_used(const struct layout_mesh_rule *rule, const struct layout_table *like,
                              struct error *err)
{
    SCOPED(mem_free) void *memory = mem_array(like->tensors_count + 1, sizeof(char *));
    SCOPED_TEXT char *pattern = mem_printf("%.*s", (int)rule->pattern_len, rule->pattern);
    const char **names = memory;

    for (uint32_t i = 0; i < like->tensors_count; i++) {
        names[i] = like->tensors[i].name;
        if (matches(rule, names[i], like->tensors[i].name_len))
            return STATUS_OK;
    }
    const char *nearest = text_nearest(pattern, names, like->tensors_count);
    return error_set(err, STATUS_INVALID, "rule %.100s: no tensor is called so%s%.100s%s", pattern,
                     nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

enum status layout_mesh_table(const struct layout_mesh *mesh, const struct layout_mesh_rule *rules,
                              size_t count, const struct layout_table *like,
                              struct layout_table **out, struct error *err)
{
    SCOPED(layout_build_destroy)
    struct layout_build *build = layout_build_create(layout_mesh_world(mesh));
    enum status st = STATUS_OK;

    for (size_t i = 0; i < count && st == STATUS_OK; i++)
        st = check_used(&rules[i], like, err);
    if (st == STATUS_OK)
        st = add_tensors(mesh, rules, count, like, build, err);

    for (uint32_t i = 0; i < like->aliases_count && st == STATUS_OK; i++) {
        const struct layout_alias *alias = &like->aliases[i];
        const struct layout_tensor *tensor = &like->tensors[alias->tensor];
        st =
            layout_build_alias(build, alias->name, alias->len, tensor->name, tensor->name_len, err);
    }
    return st == STATUS_OK ? layout_build_finish(build, out, err) : st;
}
