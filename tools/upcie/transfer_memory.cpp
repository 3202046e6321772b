// SPDX-License-Identifier: BSD-3-Clause
#include "transfer_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include <upcie/memory/bar_memory.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/open.hpp>
#include <upcie/vfio/device.hpp>

namespace upcie::cli {

namespace {

std::string check_memory_name(const std::string& text) {
    if (text.rfind("bar:", 0) != 0) {
        return gpu::Name::parse(text) ? std::string{}
                                      : "'" + text +
                                            "' is neither bar:BDF:N (bar:0000:02:00.0:2) nor a GPU (cuda:0, hip:0, "
                                            "stub:whole-object)";
    }
    const bool shape = text.size() > 6 && text[text.size() - 2] == ':' && text.back() >= '0' && text.back() <= '5';
    const std::string device = shape ? text.substr(4, text.size() - 6) : std::string{};
    const bool named =
        device.rfind("sim:", 0) == 0 || device.find("vfio") != std::string::npos || pci::Bdf::parse(device).has_value();
    return named ? std::string{} : "'" + text + "' is not bar:BDF:N, as in bar:0000:02:00.0:2";
}

} // namespace

void add_memory_options(CLI::App& subcommand, MemoryChoice& choice) {
    subcommand
        .add_option("--into", choice.name,
                    "Memory of the commands: a GPU's (cuda:N, hip:N, stub[:MANNER]), or bar:BDF:N, a BAR of a device "
                    "that is bound to vfio-pci; the host's without")
        ->check(check_memory_name)
        ->type_name("MEMORY");
    subcommand.add_flag("--system-memory-ok", choice.system_memory_ok,
                        "Take a GPU's memory although it lies in the host's (integrated GPUs)");
}

Outcome<TransferMemory> TransferMemory::make(Context& context, const Session& session, const MemoryChoice& choice,
                                             ByteCount wanted, ByteCount piece) {
    TransferMemory memory;
    const auto& space = session.controller->address_space();
    auto registry = memory::Registry::create(context.system, space);
    if (!registry) {
        return stop(std::move(registry.error()));
    }
    memory.registry_ = std::move(*registry);
    const auto made = choice.host()  ? memory.on_host(context.system, space, wanted)
                      : choice.bar() ? memory.in_bar(context.system, choice.name, wanted, piece)
                                     : memory.on_gpu(context.system, session, choice, wanted);
    if (!made) {
        // What is not there, or not allowed, is the machine's lack and no failure of the device.
        const Error& error = made.error();
        const bool missing =
            !choice.host() && (error.is(ENODEV) || error.is(ENOENT) || error.is(ENOSYS) || error.is(ENOTSUP) ||
                               error.is(EACCES) || (error.domain == ErrorDomain::vendor && memory.gpu_ == nullptr));
        return stop(made.error(), missing ? ExitCode::precondition : ExitCode::failed);
    }
    return memory;
}

Result<void> TransferMemory::on_host(os::System& system, const std::shared_ptr<iommu::AddressSpace>& space,
                                     ByteCount size) {
    const auto backing = space->needs_hugepages() ? memory::Backing::hugepage_2m : memory::Backing::plain;
    auto buffer = memory::Buffer::allocate(system, size, backing);
    if (!buffer) {
        return tl::unexpected{std::move(buffer.error())};
    }
    buffer_ = std::move(*buffer);
    return registry_->register_buffer(buffer_).map([&](auto made) { registration_ = std::move(made); });
}

Result<void> TransferMemory::in_bar(os::System& system, std::string_view spec, ByteCount wanted, ByteCount piece) {
    constexpr std::string_view prefix = "bar:";
    const auto colon = spec.rfind(':');
    unsigned index = 0;
    const auto number = spec.substr(colon == std::string_view::npos ? spec.size() : colon + 1);
    const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (spec.substr(0, prefix.size()) != prefix || colon < prefix.size() || problem != std::errc{} ||
        end != number.data() + number.size() || index > 5) {
        return fail(EINVAL, "choose memory", std::string{spec},
                    "Write bar:BDF:N, as in bar:0000:02:00.0:2; N is 0 to 5.");
    }
    const std::string device{spec.substr(prefix.size(), colon - prefix.size())};
    auto opened = upcie::open_function(system, device);
    if (!opened) {
        return tl::unexpected{std::move(opened.error())};
    }
    const std::shared_ptr<pci::Function> function{std::move(*opened)};
    const auto owner = std::dynamic_pointer_cast<vfio::VfioFunction>(function);
    if (!owner) {
        return fail(
            ENOTSUP, "choose memory", device,
            fmt::format("Its path is {}, and only vfio exports BARs: upcie bind {}.", function->path(), device));
    }
    const auto region = owner->region(index);
    if (!region) {
        return tl::unexpected{region.error()};
    }
    const ByteCount room{std::min(wanted, region->size).value() / piece.value() * piece.value()};
    if (room == ByteCount{}) {
        return fail(ENOSPC, "choose memory", fmt::format("BAR {} of {}", index, device),
                    fmt::format("It has {} bytes, and one command's memory is {}: make --size smaller.",
                                region->size.value(), piece.value()));
    }
    return memory::register_bar(*registry_, owner, index, ByteCount{}, room).map([&](auto made) {
        registration_ = std::move(made);
    });
}

Result<void> TransferMemory::on_gpu(os::System& system, const Session& session, const MemoryChoice& choice,
                                    ByteCount size) {
    const auto name = gpu::Name::parse(choice.name);
    if (!name) {
        return tl::unexpected{name.error()};
    }
    auto runtime = gpu::open(system, *name);
    if (!runtime) {
        return tl::unexpected{std::move(runtime.error())};
    }
    memory::DeviceExports::Options options;
    options.refuse_system_memory = !choice.system_memory_ok && name->flavour != gpu::Name::Flavour::stub;
    auto importer = importer_for(system, session.function(), *runtime);
    if (!importer) {
        return tl::unexpected{std::move(importer.error())};
    }
    options.importer = std::move(*importer);
    auto buffer =
        memory::Buffer::allocate_on_device(std::make_shared<memory::DeviceExports>(*runtime, std::move(options)), size);
    if (!buffer) {
        return tl::unexpected{std::move(buffer.error())};
    }
    gpu_ = std::move(*runtime);
    buffer_ = std::move(*buffer);
    return registry_->register_buffer(buffer_).map([&](auto made) { registration_ = std::move(made); });
}

MemoryPart::MemoryPart(const TransferMemory& memory, ByteCount offset, ByteCount length)
    : gpu_{memory.gpu().get()}, address_{memory.data() + offset.value()} {
    if (gpu_ != nullptr) {
        copy_.resize(length.value());
    } else {
        direct_ = {address_, static_cast<std::size_t>(length.value())};
    }
}

Result<void> MemoryPart::to_device() {
    if (gpu_ == nullptr) {
        return {};
    }
    return gpu_->copy_to_device(DevicePointer{reinterpret_cast<std::uintptr_t>(address_)}, copy_.data(),
                                ByteCount{copy_.size()});
}

Result<void> MemoryPart::to_host(std::size_t length) {
    if (gpu_ == nullptr) {
        return {};
    }
    return gpu_->copy_to_host(copy_.data(), DevicePointer{reinterpret_cast<std::uintptr_t>(address_)},
                              ByteCount{length});
}

Result<std::optional<std::uint64_t>> MemoryPart::checksum_on_device(std::size_t length) const {
    if (gpu_ == nullptr) {
        return std::nullopt;
    }
    const auto sum = gpu_->checksum(DevicePointer{reinterpret_cast<std::uintptr_t>(address_)}, ByteCount{length});
    if (!sum && !sum.error().is(ENOTSUP)) {
        return tl::unexpected{sum.error()};
    }
    return sum ? std::optional{*sum} : std::nullopt;
}

Result<std::span<std::byte>> Landed::bytes() {
    if (!here_) {
        if (auto copied = part_.to_host(length_); !copied) {
            return tl::unexpected{std::move(copied.error())};
        }
        here_ = true;
    }
    return part_.bytes().first(length_);
}

} // namespace upcie::cli
