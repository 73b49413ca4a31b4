/* layout_mesh.h - layouts from a mesh of ranks, "data=2,tensor=4", and rules for names of tensors.
 *
 * Any thread; pure. Ranks are numbered row-major, the last axis fastest. A rule says along which
 * dims axes cut the tensors whose names it matches; axes that it does not name replicate. */
#pragma once
#include "checkpoint/layout.h"
#include "checkpoint/layout_rule.h"

#define LAYOUT_MESH_AXES     8
#define LAYOUT_MESH_NAME_MAX 31
#define LAYOUT_MESH_NO_DIM   UINT8_MAX

struct layout_mesh {
    uint32_t axes;
    struct {
        char name[LAYOUT_MESH_NAME_MAX + 1];
        uint32_t size;
    } axis[LAYOUT_MESH_AXES];
};
struct layout_mesh_rule {
    const char *pattern; /* of the whole name; '*' stands for any run of bytes. Borrowed */
    size_t pattern_len;
    uint8_t dim[LAYOUT_MESH_AXES]; /* that each axis cuts; LAYOUT_MESH_NO_DIM: none */
    enum layout_rule cut;
};

/* "data=2,tensor=4". */
enum status layout_mesh_parse(const char *text, struct layout_mesh *out,
                              struct error *err) MUST_CHECK;
uint32_t layout_mesh_world(const struct layout_mesh *mesh);
/* "*.qkv.weight=0:tensor" or "experts.*=0:expert,2:tensor"; behind it " balanced" (else as
 * torch.chunk). "norm.*=" replicates. The pattern is a loan of the text. */
enum status layout_mesh_rule_parse(const struct layout_mesh *mesh, const char *text,
                                   struct layout_mesh_rule *out, struct error *err) MUST_CHECK;
/* The declared layouts of the tensors and aliases of another table. The first rule that matches
 * holds; one that matches no tensor is STATUS_INVALID. Tensors without one keep the dims along
 * which the other table cuts them: the axis "data" replicates, the first other axis cuts the first
 * such dim, and so on; the last dim takes the axes that are left. */
enum status layout_mesh_table(const struct layout_mesh *mesh, const struct layout_mesh_rule *rules,
                              size_t count, const struct layout_table *like,
                              struct layout_table **out, struct error *err) MUST_CHECK;
