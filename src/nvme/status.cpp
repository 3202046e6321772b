// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/nvme/status.hpp>

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace upcie::nvme {
namespace {

struct Name {
    std::uint16_t type_and_code; ///< as in the status field, bits 10:0
    std::string_view name;
};

// Base Specification 2.0, figures 94 to 102; NVM Command Set Specification 1.0, figures 17 and 18. Ascending.
constexpr std::array names{
    Name{0x000, "Successful Completion"},
    Name{0x001, "Invalid Command Opcode"},
    Name{0x002, "Invalid Field in Command"},
    Name{0x003, "Command ID Conflict"},
    Name{0x004, "Data Transfer Error"},
    Name{0x005, "Commands Aborted due to Power Loss Notification"},
    Name{0x006, "Internal Error"},
    Name{0x007, "Command Abort Requested"},
    Name{0x008, "Command Aborted due to SQ Deletion"},
    Name{0x009, "Command Aborted due to Failed Fused Command"},
    Name{0x00a, "Command Aborted due to Missing Fused Command"},
    Name{0x00b, "Invalid Namespace or Format"},
    Name{0x00c, "Command Sequence Error"},
    Name{0x00d, "Invalid SGL Segment Descriptor"},
    Name{0x00e, "Invalid Number of SGL Descriptors"},
    Name{0x00f, "Data SGL Length Invalid"},
    Name{0x010, "Metadata SGL Length Invalid"},
    Name{0x011, "SGL Descriptor Type Invalid"},
    Name{0x012, "Invalid Use of Controller Memory Buffer"},
    Name{0x013, "PRP Offset Invalid"},
    Name{0x014, "Atomic Write Unit Exceeded"},
    Name{0x015, "Operation Denied"},
    Name{0x016, "SGL Offset Invalid"},
    Name{0x018, "Host Identifier Inconsistent Format"},
    Name{0x019, "Keep Alive Timer Expired"},
    Name{0x01a, "Keep Alive Timeout Invalid"},
    Name{0x01b, "Command Aborted due to Preempt and Abort"},
    Name{0x01c, "Sanitize Failed"},
    Name{0x01d, "Sanitize In Progress"},
    Name{0x01e, "SGL Data Block Granularity Invalid"},
    Name{0x01f, "Command Not Supported for Queue in CMB"},
    Name{0x020, "Namespace is Write Protected"},
    Name{0x021, "Command Interrupted"},
    Name{0x022, "Transient Transport Error"},
    Name{0x080, "LBA Out of Range"},
    Name{0x081, "Capacity Exceeded"},
    Name{0x082, "Namespace Not Ready"},
    Name{0x083, "Reservation Conflict"},
    Name{0x084, "Format In Progress"},
    Name{0x100, "Completion Queue Invalid"},
    Name{0x101, "Invalid Queue Identifier"},
    Name{0x102, "Invalid Queue Size"},
    Name{0x103, "Abort Command Limit Exceeded"},
    Name{0x105, "Asynchronous Event Request Limit Exceeded"},
    Name{0x106, "Invalid Firmware Slot"},
    Name{0x107, "Invalid Firmware Image"},
    Name{0x108, "Invalid Interrupt Vector"},
    Name{0x109, "Invalid Log Page"},
    Name{0x10a, "Invalid Format"},
    Name{0x10b, "Firmware Activation Requires Conventional Reset"},
    Name{0x10c, "Invalid Queue Deletion"},
    Name{0x10d, "Feature Identifier Not Saveable"},
    Name{0x10e, "Feature Not Changeable"},
    Name{0x10f, "Feature Not Namespace Specific"},
    Name{0x115, "Namespace Insufficient Capacity"},
    Name{0x116, "Namespace Identifier Unavailable"},
    Name{0x118, "Namespace Already Attached"},
    Name{0x11a, "Namespace Not Attached"},
    Name{0x180, "Conflicting Attributes"},
    Name{0x181, "Invalid Protection Information"},
    Name{0x182, "Attempted Write to Read Only Range"},
    Name{0x280, "Write Fault"},
    Name{0x281, "Unrecovered Read Error"},
    Name{0x282, "End-to-end Guard Check Error"},
    Name{0x283, "End-to-end Application Tag Check Error"},
    Name{0x284, "End-to-end Reference Tag Check Error"},
    Name{0x285, "Compare Failure"},
    Name{0x286, "Access Denied"},
    Name{0x287, "Deallocated or Unwritten Logical Block"},
    Name{0x300, "Internal Path Error"},
    Name{0x301, "Asymmetric Access Persistent Loss"},
    Name{0x302, "Asymmetric Access Inaccessible"},
    Name{0x303, "Asymmetric Access Transition"},
    Name{0x360, "Controller Pathing Error"},
    Name{0x370, "Host Pathing Error"},
    Name{0x371, "Command Aborted By Host"},
};

} // namespace

std::string_view Status::name() const noexcept {
    const std::uint16_t wanted = raw_ & 0x7ff;
    const auto* found = std::lower_bound(names.begin(), names.end(), wanted, [](const Name& name, std::uint16_t value) {
        return name.type_and_code < value;
    });
    if (found != names.end() && found->type_and_code == wanted) {
        return found->name;
    }
    return type() == StatusCodeType::vendor_specific ? "vendor specific status" : "unknown status";
}

std::string Status::describe() const {
    std::string text = fmt::format("{} (type {:#x}, code {:#04x}", name(), static_cast<unsigned>(type()), code());
    if (do_not_retry()) {
        text += ", do not retry";
    }
    if (more()) {
        text += ", more in the error log";
    }
    if (retry_delay() != 0) {
        text += fmt::format(", retry delay {}", retry_delay());
    }
    return text + ")";
}

} // namespace upcie::nvme
