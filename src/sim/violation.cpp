// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/sim/violation.hpp>

namespace upcie::sim {

std::string_view to_string(ViolationKind kind) noexcept {
    switch (kind) {
    case ViolationKind::access_fault:
        return "access_fault";
    case ViolationKind::dma_while_not_master:
        return "dma_while_not_master";
    case ViolationKind::doorbell_value:
        return "doorbell_value";
    case ViolationKind::doorbell_without_queue:
        return "doorbell_without_queue";
    case ViolationKind::register_write:
        return "register_write";
    case ViolationKind::controller_setup:
        return "controller_setup";
    case ViolationKind::queue_memory:
        return "queue_memory";
    case ViolationKind::queue_not_zeroed:
        return "queue_not_zeroed";
    case ViolationKind::cid_in_use:
        return "cid_in_use";
    case ViolationKind::reserved_field:
        return "reserved_field";
    case ViolationKind::prp_misaligned:
        return "prp_misaligned";
    case ViolationKind::prp_unused:
        return "prp_unused";
    case ViolationKind::sgl_invalid:
        return "sgl_invalid";
    case ViolationKind::after_shutdown:
        return "after_shutdown";
    }
    return "unknown";
}

std::string to_string(const std::vector<Violation>& violations) {
    std::string text;
    for (const Violation& violation : violations) {
        text += to_string(violation.kind);
        text += ": ";
        text += violation.text;
        text += '\n';
    }
    return text;
}

} // namespace upcie::sim
