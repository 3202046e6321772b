// SPDX-License-Identifier: BSD-3-Clause
#include "vfio_share_gpu.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "../environment.hpp"
#include "../two_processes.hpp"

namespace upcie::probes {

const char* const vfio_share_gpu_question =
    "Can a process that holds only a passed descriptor of a device reach the device's BAR from the GPU, and what "
    "privilege does the GPU's runtime ask for?";

namespace {

constexpr std::uint64_t ordinary_word = 0x6f7264696e617279;

/// Two reads of 32 bits: the only width that every controller takes.
std::uint64_t read_registers(const os::Mapping& view) {
    const auto* const words = static_cast<const volatile std::uint32_t*>(static_cast<const void*>(view.data()));
    const std::uint64_t low = words[0];
    return low | (std::uint64_t{words[1]} << 32);
}

bool is_telling(std::uint64_t word) {
    return word != 0 && word != ~std::uint64_t{0};
}

/// Tells what a call of the GPU's runtime came to; true where it succeeded.
template <class T>
bool came_to(Report& report, const std::string& name, const Result<T>& result, const std::string& note = {}) {
    if (result) {
        report.outcome(name, 0, note);
    } else {
        tell(report, name, result.error(), note);
    }
    return result.has_value();
}

/// What one process sees with its GPU. Names begin with "ordinary." for memory of its own and "bar." for the device's.
class GpuLook {
  public:
    GpuLook(Report& report, const Requests& requests, ProbedGpu& gpu)
        : report_{report}, requests_{requests}, gpu_{gpu} {}

    /// `alone`: there is nothing else to look at, so that a read that may cost the process its GPU is tried too.
    Result<void> look_at_ordinary_memory(bool alone);
    void look_at_registers(const os::Mapping& view, const DevicePage& where);

  private:
    Report& report_;
    const Requests& requests_;
    ProbedGpu& gpu_;
};

Result<void> GpuLook::look_at_ordinary_memory(bool alone) {
    const Result<SharedMemory> memory = make_shared_memory(requests_, "upcie-probe-ordinary", page);
    if (!memory) {
        return tl::unexpected{memory.error()};
    }
    std::byte* const start = memory->view.data();
    std::memcpy(start, &ordinary_word, sizeof ordinary_word);
    bool reached = false;
    const auto registered = gpu_.register_host(start, ByteCount{page});
    if (came_to(report_, "ordinary.registration", registered, "a page of a memfd, as what it is")) {
        const auto seen = gpu_.read(*registered);
        came_to(report_, "ordinary.gpu_read", seen);
        reached = seen && *seen == ordinary_word;
        came_to(report_, "ordinary.unregistration", gpu_.unregister_host(start));
    }
    report_.control("", "control.ordinary_memory_is_reachable", reached, reached,
                    "device code reads what the host wrote into registered memory: a refusal is then about the BAR");
    const auto as_mmio = gpu_.runtime().register_mmio(start, ByteCount{page});
    if (!came_to(report_, "ordinary.registration_as_iomemory", as_mmio, "the same page, said to be MMIO")) {
        return {};
    }
    if (alone) {
        const auto seen = gpu_.read(*as_mmio);
        came_to(report_, "ordinary.gpu_read_as_iomemory", seen);
        report_.observe("ordinary.gpu_read_as_iomemory_is_equal", seen && *seen == ordinary_word);
    }
    came_to(report_, "ordinary.unregistration_as_iomemory", gpu_.runtime().unregister_mmio(start));
    return {};
}

void GpuLook::look_at_registers(const os::Mapping& view, const DevicePage& where) {
    const std::uint64_t word = read_registers(view);
    report_.observe("bar.host_word", hex(word), "address",
                    where.nvme && where.bar_offset == 0 ? "the register CAP" : "the page's first 8 bytes");
    report_.control("", "control.host_reads_the_register", is_telling(word), hex(word),
                    "neither all zeros nor all ones: a word that is equal by chance says nothing");
    const bool by_kernel = gpu_.read_by() == ReadBy::kernel;
    report_.observe("bar.read_by", to_string(gpu_.read_by()), {},
                    by_kernel ? "" : "weaker: a copy engine or the host may have done it, and neither rings doorbells");
    const auto registered = gpu_.runtime().register_mmio(view.data(), view.size());
    if (!came_to(report_, "bar.registration", registered, "the mapping of the BAR, as IOMEMORY")) {
        return;
    }
    const auto seen = gpu_.read(*registered);
    came_to(report_, "bar.gpu_read", seen);
    if (seen) {
        report_.observe("bar.gpu_word", hex(*seen), "address");
    }
    const std::uint64_t again = read_registers(view);
    report_.control("", "control.the_register_holds_still", again == word, hex(again),
                    "the host reads the same after the GPU as before");
    came_to(report_, "bar.unregistration", gpu_.runtime().unregister_mmio(view.data()));
}

std::string described(const Identity& who) {
    return fmt::format("of uid {} with {}", who.effective_uid,
                       who.effective_capabilities == 0 ? std::string{"no capabilities"}
                                                       : "capabilities " + hex(who.effective_capabilities));
}

std::string value_of(const Report& report, const char* name) {
    const Observation* const seen = report.find(name);
    return seen == nullptr || !seen->value.is_string() ? std::string{} : seen->value.get<std::string>();
}

/// The three answers about a BAR; `topic` is that of the whole, `subject` says who asked.
void judge_registers(Report& report, const char* topic, const std::string& subject) {
    const std::string refusal = value_of(report, "bar.registration");
    const bool registered = report.succeeded("bar.registration");
    if (refusal.empty()) {
        report.answer("registration", "not_seen",
                      subject + " cannot even map the BAR (" + value_of(report, "bar.mmap") + ").");
    } else if (registered) {
        report.answer("registration", "ok", subject + " may register its mapping of the BAR for device code.");
    } else {
        report.answer("registration", "refused",
                      subject + " may not register its mapping of the BAR for device code: " + refusal + ".");
    }
    const bool read = report.succeeded("bar.gpu_read");
    const bool equal = read && value_of(report, "bar.gpu_word") == value_of(report, "bar.host_word");
    const std::string way = value_of(report, "bar.read_by");
    const std::string weaker =
        way == to_string(ReadBy::copy)
            ? " A copy is the weaker witness: a copy engine or the host may have done it, and neither rings a doorbell."
            : "";
    report.answer("device_read",
                  equal  ? "equal"
                  : read ? "differs"
                         : "not_reached",
                  equal        ? "The GPU reads there, by " + way + ", what the host reads." + weaker
                  : read       ? "The GPU reads there, by " + way + ", something else than the host." + weaker
                  : registered ? "The registration is no use: reading by " + way + " failed (" +
                                     value_of(report, "bar.gpu_read") + ")."
                               : std::string{"Nothing could be read by the GPU."});
    report.answer(topic, equal ? "reachable" : "not_reachable",
                  subject + (equal ? " reaches the BAR from the GPU." : " does not reach the BAR from the GPU."));
}

void judge_ordinary_memory(Report& report, const std::string& subject) {
    const std::string nothing = "No device was given: whether the GPU reaches a BAR is not seen.";
    for (const char* topic : {"registration", "device_read", "standalone"}) {
        report.answer(topic, "not_seen", nothing);
    }
    const std::string outcome = value_of(report, "ordinary.registration_as_iomemory");
    const bool taken = report.succeeded("ordinary.registration_as_iomemory");
    report.answer("ordinary_as_iomemory", taken ? "ok" : "refused",
                  taken ? subject + " may register ordinary memory as IOMEMORY."
                        : subject + " may not register ordinary memory as IOMEMORY: " + outcome +
                              ". Compare users: a refusal of privilege differs between them, one of the kind of "
                              "memory does not.");
}

/// What the primary's message says of a device; nothing where it hands none over. Error: EPROTO.
Result<std::optional<DevicePage>> page_of(const Message& message) {
    DevicePage where;
    try {
        const Value& device = message.data.at("device");
        if (device.is_null() && message.fds.empty()) {
            return std::nullopt;
        }
        where.bdf = device.at("bdf").get<std::string>();
        where.cdev = device.at("cdev").get<std::string>();
        where.bar_offset = device.at("bar_offset").get<std::uint64_t>();
        where.file_offset = device.at("file_offset").get<std::uint64_t>();
        where.nvme = device.at("nvme").get<bool>();
    } catch (const Value::exception&) {
        where = {};
    }
    if (where.bdf.empty() || message.fds.size() != 1) {
        return fail(EPROTO, "taking the device over", "the primary",
                    "The message lacks something: use the same build on both sides.");
    }
    return where;
}

} // namespace

Environment environment_with_gpu(os::System& system, const DevicePage* where, Value gpu) {
    Environment environment = where != nullptr ? given_environment(system, where->bdf) : describe_kernel();
    if (where != nullptr) {
        environment.device["gpu"] = std::move(gpu);
    } else {
        environment.device = std::move(gpu);
    }
    return environment;
}

Result<OpenedPage> open_page(const Requests& requests, const pci::FunctionInfo& function) {
    Result<Session> session = open_session(requests, function.vfio_cdev);
    if (!session) {
        return tl::unexpected{std::move(session.error())};
    }
    const int device = session->device.get();
    const Answered<uapi::VfioRegionInfo> bar = requests.region_info(device, 0);
    if (!bar.ok()) {
        return fail(bar.error, "VFIO_DEVICE_GET_REGION_INFO", "BAR 0 of " + function.vfio_cdev,
                    "This is unexpected: see dmesg.");
    }
    int error = ENODEV;
    for (std::uint64_t offset = 0; offset + page <= bar.value.size; offset += page) {
        Answered<os::Mapping> view = requests.map_shared(device, bar.value.offset + offset, page);
        if (view.ok()) {
            return OpenedPage{
                std::move(*session),
                {function.bdf.to_string(), function.vfio_cdev, offset, bar.value.offset + offset, function.is_nvme()},
                std::move(view.value)};
        }
        error = view.error;
    }
    return fail(error, "mmap", "BAR 0 of " + function.vfio_cdev,
                "The question is about a BAR of memory with a page that can be mapped: ask with another device.");
}

Result<void> ask_gpu_alone(Report& report, const Requests& requests, ProbedGpu& gpu, const OpenedPage* device) {
    const Result<Identity> self = who_am_i(requests.system());
    if (!self) {
        return tl::unexpected{self.error()};
    }
    report.add_process("standalone", self->json());
    report.set_environment(
        environment_with_gpu(requests.system(), device != nullptr ? &device->where : nullptr, gpu.describe()));
    GpuLook look{report, requests, gpu};
    if (Result<void> done = look.look_at_ordinary_memory(device == nullptr); !done) {
        return done;
    }
    if (device == nullptr) {
        report.not_seen("bar", "no device was given");
        judge_ordinary_memory(report, "A process " + described(*self));
        return {};
    }
    look.look_at_registers(device->view, device->where);
    judge_registers(report, "standalone", "A process " + described(*self) + " that opened the device itself");
    return {};
}

Result<SecondaryTold> ask_secondary(Report& report, const Requests& requests, Channel& secondary,
                                    const OpenedPage* device) {
    const Result<Identity> other = introduce(report, requests.system(), secondary, "primary", "secondary");
    if (!other) {
        return tl::unexpected{other.error()};
    }
    Value offer = {{"device", nullptr}};
    std::vector<int> fds;
    if (device != nullptr) {
        const DevicePage& where = device->where;
        offer["device"] = {{"bdf", where.bdf},
                           {"cdev", where.cdev},
                           {"bar_offset", where.bar_offset},
                           {"file_offset", where.file_offset},
                           {"nvme", where.nvme}};
        fds.push_back(device->session.device.get());
    }
    const Result<void> sent = secondary.send("page", offer, fds);
    const Result<Message> told = sent ? secondary.expect("looked") : tl::unexpected{sent.error()};
    if (!told) {
        return tl::unexpected{told.error()};
    }
    if (const Result<void> taken = take_findings(report, *told); !taken) {
        return tl::unexpected{taken.error()};
    }
    if (told->data.value("flavour", Value{}) != gpu_flavour().name) {
        return fail(EPROTO, "asking a GPU", "the secondary",
                    "It asks another vendor's runtime: start both sides of the same program.");
    }
    Value gpu = told->data.value("gpu", Value::object());
    report.set_environment(environment_with_gpu(requests.system(), device != nullptr ? &device->where : nullptr, gpu));
    return SecondaryTold{*other, std::move(gpu)};
}

Result<void> ask_share_gpu(Report& report, const Requests& requests, Channel& secondary, const OpenedPage& device) {
    const std::uint64_t word = read_registers(device.view);
    report.observe("primary.host_word", hex(word), "address", "through the mapping of whoever opened the device");
    const Result<SecondaryTold> told = ask_secondary(report, requests, secondary, &device);
    if (!told) {
        return tl::unexpected{told.error()};
    }
    if (const Observation* const seen = report.find("bar.host_word")) {
        report.control("", "control.both_hosts_read_the_same", seen->value == hex(word), seen->value,
                       "through the passed descriptor as through the primary's own");
    }
    judge_registers(report, "delegated",
                    "A process " + described(told->who) + " that was given the device's descriptor alone");
    return {};
}

Result<void> be_share_gpu_secondary(Report& report, const Requests& requests, ProbedGpu& gpu, Channel& primary) {
    const Result<Identity> other = introduce(report, requests.system(), primary, "secondary", "primary");
    Result<Message> message = other ? primary.expect("page") : tl::unexpected{other.error()};
    if (!message) {
        return tl::unexpected{message.error()};
    }
    const Result<std::optional<DevicePage>> given = page_of(*message);
    if (!given) {
        return tl::unexpected{given.error()};
    }
    const DevicePage* const where = *given ? &**given : nullptr;
    report.set_environment(environment_with_gpu(requests.system(), where, gpu.describe()));
    GpuLook look{report, requests, gpu};
    if (Result<void> done = look.look_at_ordinary_memory(where == nullptr); !done) {
        return done;
    }
    if (where == nullptr) {
        report.not_seen("bar", "no device was given");
    } else {
        report.outcome("bar.own_open_of_cdev", requests.open(where->cdev).error,
                       "what this process could open by itself");
        const Answered<os::Mapping> view = requests.map_shared(message->fds[0].get(), where->file_offset, page);
        report.outcome("bar.mmap", view.error, "of the passed descriptor");
        if (view.ok()) {
            look.look_at_registers(view.value, *where);
        }
    }
    return primary.send(
        "looked", {{"findings", report.share_findings()}, {"flavour", gpu_flavour().name}, {"gpu", gpu.describe()}});
}

} // namespace upcie::probes
