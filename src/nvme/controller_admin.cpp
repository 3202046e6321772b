// SPDX-License-Identifier: BSD-3-Clause
// Administration of a controller, and what it says about itself.
#include <upcie/nvme/controller.hpp>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "nvme/controller_parts.hpp"
#include "nvme/little_endian.hpp"

namespace upcie::nvme {

const std::string& Controller::name() const noexcept {
    return parts_->function->identity().name;
}
const ControllerInfo& Controller::info() const noexcept {
    return parts_->info;
}
Capabilities Controller::capabilities() const noexcept {
    return parts_->capabilities;
}
Version Controller::version() const noexcept {
    return parts_->version;
}
unsigned Controller::page_shift() const noexcept {
    return parts_->page_shift;
}
std::optional<ByteCount> Controller::max_transfer() const noexcept {
    return parts_->info.max_transfer(parts_->capabilities);
}
std::uint32_t Controller::queue_count() const noexcept {
    return parts_->queue_count;
}
std::string Controller::queue_count_reason() const {
    return parts_->queue_count_reason;
}
unsigned Controller::interrupt_vectors() const noexcept {
    return static_cast<unsigned>(parts_->interrupts.size());
}
const std::shared_ptr<pci::Function>& Controller::function() const noexcept {
    return parts_->function;
}
std::shared_ptr<iommu::AddressSpace> Controller::address_space() const {
    return parts_->function->address_space();
}
os::System& Controller::system() const noexcept {
    return parts_->system;
}
ControllerState Controller::state() const noexcept {
    return parts_->state;
}
std::uint64_t Controller::function_resets() const noexcept {
    return parts_->function_resets;
}
RegisterAccess& Controller::registers() noexcept {
    return *parts_->registers;
}

Result<ControllerStatus> Controller::status() {
    auto status = parts_->registers->status();
    if (status && status->fatal()) {
        return fail(EIO, "look at controller", name(), "The controller reports a fatal error (CSTS.CFS): reset() it");
    }
    return status;
}

Result<std::optional<MemoryBuffer>> Controller::memory_buffer() {
    if (!parts_->capabilities.memory_buffer_supported()) {
        return std::optional<MemoryBuffer>{};
    }
    const auto location = parts_->registers->read32(offset::memory_buffer_location);
    if (!location) {
        return tl::unexpected{location.error()};
    }
    const auto size = parts_->registers->read32(offset::memory_buffer_size);
    if (!size) {
        return tl::unexpected{size.error()};
    }
    return std::optional<MemoryBuffer>{MemoryBuffer{*location, *size}};
}

Result<void> Controller::check_usable(const char* operation) const {
    switch (parts_->state.load()) {
    case ControllerState::ready:
        return {};
    case ControllerState::resetting:
        return fail(ENODEV, operation, name(), "The controller is being reset: try again when that is done");
    case ControllerState::failed:
        break;
    }
    return fail(ENODEV, operation, name(), "The controller failed: reset() it, or open it again");
}

Result<std::uint64_t> Controller::admin(const Command& command, std::span<std::byte> data,
                                        std::optional<std::chrono::nanoseconds> timeout) {
    if (auto usable = check_usable("admin command"); !usable) {
        return tl::unexpected{std::move(usable).error()};
    }
    const ByteCount most = std::min(max_transfer().value_or(2_MiB), ByteCount{prp_capacity(1, parts_->page_shift)});
    if (data.size() % 4 != 0 || data.size() > most.value()) {
        return fail(
            EINVAL, admin_command_name(command.opcode), name(),
            fmt::format("{} bytes of data: it must be a multiple of 4 and at most {}", data.size(), most.value()));
    }
    return parts_->admin->run(command, data, timeout.value_or(parts_->options.admin_timeout));
}

Result<IdentifyData> Controller::Parts::identify(std::uint8_t cns, Nsid nsid, std::uint16_t controller_id,
                                                 std::uint8_t command_set) {
    IdentifyData data{};
    Command command;
    command.opcode = static_cast<std::uint8_t>(AdminOpcode::identify);
    command.nsid = nsid.value();
    command.cdw10 = cns | (std::uint32_t{controller_id} << 16);
    command.cdw11 = std::uint32_t{command_set} << 24;
    if (auto done = admin->run(command, data, options.admin_timeout); !done) {
        return tl::unexpected{std::move(done).error()};
    }
    return data;
}

Result<IdentifyData> Controller::identify(std::uint8_t cns, Nsid nsid, std::uint16_t controller_id,
                                          std::uint8_t command_set) {
    if (auto usable = check_usable("Identify"); !usable) {
        return tl::unexpected{std::move(usable).error()};
    }
    return parts_->identify(cns, nsid, controller_id, command_set);
}

Result<ControllerInfo> Controller::identify_controller() {
    return identify(1, Nsid{0}).map([](const IdentifyData& data) { return ControllerInfo::parse(data); });
}

Result<NamespaceInfo> Controller::identify_namespace(Nsid nsid) {
    const auto data = identify(0, nsid);
    if (!data) {
        return tl::unexpected{data.error()};
    }
    auto info = NamespaceInfo::parse(nsid, *data);
    if (info && info->size_blocks == 0) {
        return fail(ENODEV, "identify namespace", fmt::format("{}, namespace {}", name(), nsid.value()),
                    "It is not active: active_namespaces() lists those that are");
    }
    return info;
}

Result<std::vector<Nsid>> Controller::active_namespaces() {
    std::vector<Nsid> active;
    // CNS 02h came with 1.1; before that all identifiers up to NN are asked one by one.
    if (parts_->version.major() == 1 && parts_->version.minor() == 0) {
        for (std::uint32_t number = 1; number != 0 && number <= parts_->info.namespaces; ++number) {
            const auto info = identify_namespace(Nsid{number});
            if (info) {
                active.push_back(Nsid{number});
            } else if (!info.error().is(ENODEV) || state() != ControllerState::ready) {
                return tl::unexpected{info.error()};
            }
        }
        return active;
    }
    constexpr std::size_t a_page = 1024;
    Nsid last{0};
    for (;;) {
        const auto data = identify(2, last);
        if (!data) {
            return tl::unexpected{data.error()};
        }
        for (std::size_t i = 0; i < a_page; ++i) {
            const Nsid next{load_at<std::uint32_t>(*data, i * 4)};
            if (next.value() == 0) {
                return active;
            }
            if (next <= last) {
                return fail(EPROTO, "list namespaces", name(),
                            fmt::format("Namespace {} follows {} in the controller's list: its firmware is at fault",
                                        next.value(), last.value()));
            }
            active.push_back(next);
            last = next;
        }
        if (last.value() >= 0xfffffffe) {
            return active;
        }
    }
}

Result<void> Controller::get_log_page(const LogPageRequest& request, std::span<std::byte> data) {
    const std::string subject = fmt::format("{}, log page {:02x}h", name(), request.log);
    if (data.empty() || data.size() % 4 != 0 || request.offset % 4 != 0) {
        return fail(EINVAL, "Get Log Page", subject, "Length and offset count in units of 4 bytes, and one at least");
    }
    // Without LPA bit 2 there is neither an offset nor the upper half of the length (12 bits before version 1.2.1).
    const bool extended = parts_->info.has_long_log_pages();
    const std::uint64_t most =
        std::min(max_transfer().value_or(64_KiB).value(), std::uint64_t{extended ? 65536U : 16384U});
    if (!extended && (request.offset != 0 || data.size() > most)) {
        return fail(ENOTSUP, "Get Log Page", subject,
                    fmt::format("This controller takes no offset (LPA bit 2 is clear): read {} bytes at most from the "
                                "start",
                                most));
    }
    for (std::uint64_t done = 0; done < data.size();) {
        const std::uint64_t now = std::min(most, data.size() - done);
        const auto dwords = static_cast<std::uint32_t>(now / 4 - 1);
        const std::uint64_t position = request.offset + done;
        Command command;
        command.opcode = static_cast<std::uint8_t>(AdminOpcode::get_log_page);
        command.nsid = request.nsid.value();
        // Only the last part gives the event free, or another page could take this one's place while it is read.
        const bool retain = request.retain_events || done + now < data.size();
        command.cdw10 =
            request.log | (std::uint32_t{request.specific} << 8) | (retain ? 0x8000U : 0U) | ((dwords & 0xffffU) << 16);
        command.cdw11 = (dwords >> 16) | (std::uint32_t{request.specific_id} << 16);
        command.cdw12 = static_cast<std::uint32_t>(position);
        command.cdw13 = static_cast<std::uint32_t>(position >> 32);
        if (auto part = admin(command, data.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(now)));
            !part) {
            return tl::unexpected{std::move(part).error()};
        }
        done += now;
    }
    return {};
}

Result<std::uint32_t> Controller::get_feature(std::uint8_t feature, FeatureSelect select, Nsid nsid,
                                              std::uint32_t cdw11, std::span<std::byte> data) {
    Command command;
    command.opcode = static_cast<std::uint8_t>(AdminOpcode::get_features);
    command.nsid = nsid.value();
    command.cdw10 = feature | (static_cast<std::uint32_t>(select) << 8);
    command.cdw11 = cdw11;
    return admin(command, data).map([](std::uint64_t result) { return static_cast<std::uint32_t>(result); });
}

Result<std::uint32_t> Controller::set_feature(std::uint8_t feature, std::uint32_t cdw11, Nsid nsid, bool save,
                                              std::span<std::byte> data) {
    constexpr std::uint8_t number_of_queues = 0x07;
    if (feature == number_of_queues) {
        return fail(
            EINVAL, "Set Features", name(),
            "The number of queues is set when the controller is opened and must not change later: use the option "
            "io_queues");
    }
    Command command;
    command.opcode = static_cast<std::uint8_t>(AdminOpcode::set_features);
    command.nsid = nsid.value();
    command.cdw10 = feature | (save ? 0x80000000U : 0U);
    command.cdw11 = cdw11;
    return admin(command, data).map([](std::uint64_t result) { return static_cast<std::uint32_t>(result); });
}

Result<void> Controller::request_event() {
    if (auto usable = check_usable("Asynchronous Event Request"); !usable) {
        return usable;
    }
    return parts_->admin->request_event();
}

Result<std::vector<Event>> Controller::take_events() {
    auto raw = parts_->admin->take_events();
    if (!raw) {
        return tl::unexpected{std::move(raw).error()};
    }
    std::vector<Event> events;
    for (const std::uint32_t dword : *raw) {
        events.push_back({static_cast<std::uint8_t>(dword & 7), static_cast<std::uint8_t>(dword >> 8),
                          static_cast<std::uint8_t>(dword >> 16)});
    }
    return events;
}

} // namespace upcie::nvme
