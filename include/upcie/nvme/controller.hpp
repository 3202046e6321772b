// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <upcie/memory/registry.hpp>
#include <upcie/nvme/identify.hpp>
#include <upcie/nvme/queue_ids.hpp>
#include <upcie/nvme/queue_pair.hpp>
#include <upcie/nvme/register_access.hpp>
#include <upcie/nvme/registers.hpp>
#include <upcie/os/system.hpp>
#include <upcie/pci/function.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::nvme {

struct ControllerOptions {
    std::uint32_t admin_depth = 64; ///< entries of the admin queue, 2 to 4096
    std::uint16_t io_queues = 64;   ///< I/O queue pairs to ask for; 0: none, the controller is only administered
    unsigned interrupt_vectors = 0; ///< eventfds to set up, as far as the function has vectors; 0: polling only
    WideAccess wide_access = WideAccess::single;
    unsigned host_page_shift = 0; ///< log2 of the page; 0: as the system says
    /// A change of CSTS.RDY is given at least this long, whatever CAP.TO says (0 is found in the field).
    std::chrono::milliseconds least_ready_timeout{500};
    /// In place of CAP.TO and CRTO, for controllers that know themselves badly.
    std::optional<std::chrono::milliseconds> ready_timeout = std::nullopt;
    /// Of an admin command that names none. CAP.TO has nothing to do with it.
    std::chrono::nanoseconds admin_timeout{std::chrono::seconds{60}};
    /// Of the normal shutdown at the end; none: RTD3E, or 10 s where the controller does not say.
    std::optional<std::chrono::milliseconds> shutdown_timeout = std::nullopt;
};

struct QueueOptions {
    std::uint32_t depth = 64; ///< entries of each ring; one stays empty, so that one less may be outstanding
    std::optional<unsigned> interrupt_vector = std::nullopt;    ///< none: a polled queue
    std::chrono::nanoseconds timeout{std::chrono::seconds{30}}; ///< of a command; 0: none
    ByteCount max_transfer{2_MiB}; ///< of one command; MDTS limits it further. Sizes the PRP lists: 4 KiB for 2 MiB
    bool use_sgl = true;           ///< for data that PRPs cannot describe, where the controller takes SGLs
    std::shared_ptr<memory::Registry> registry = nullptr; ///< that pointers resolve through; may be attached later
};

/// How a controller is. `failed` ends by a reset() that succeeds.
enum class ControllerState : std::uint8_t { ready, resetting, failed };

struct LogPageRequest {
    std::uint8_t log = 0;
    std::uint8_t specific = 0;     ///< LSP
    std::uint16_t specific_id = 0; ///< LSI
    Nsid nsid{0xffffffff};         ///< all: the controller's own
    std::uint64_t offset = 0;      ///< LPO, in bytes, a multiple of 4
    bool retain_events = false;    ///< RAE: leave the event that points at this page outstanding
};

/// Which value of a feature (Get Features, SEL).
enum class FeatureSelect : std::uint8_t { current = 0, default_value = 1, saved = 2, capabilities = 3 };

/// What happened, as an Asynchronous Event says (Base Specification 2.0, figure 146).
struct Event {
    std::uint8_t type = 0;        ///< 0 error, 1 health, 2 notice, 6 command set, 7 vendor
    std::uint8_t information = 0; ///< depends on the type
    std::uint8_t log_page = 0;    ///< reading it clears the event
};

/// An NVMe controller, brought up: disabled, configured, enabled, identified.
///
/// Held by shared_ptr; every queue pair holds it too. At the end it is shut down in the normal way and disabled; where
/// that cannot be confirmed, the memory it was given is never freed (see abandoned_memory()).
/// Threads: any, for everything. Slow admin commands do not keep other threads' out.
class Controller final : public QueueOwner, public std::enable_shared_from_this<Controller> {
  public:
    Controller(const Controller&) = delete;
    Controller& operator=(const Controller&) = delete;
    ~Controller() override;

    /// Brings the controller up. One that another driver left enabled is disabled first, before it may do DMA.
    /// Errors: ENODEV (gone, or BAR0 too small), EINVAL (an option), ENOTSUP (MPSMIN above the host's page, no command
    /// set that is spoken here, doorbells that cannot be mapped), EIO (CSTS.CFS), ETIMEDOUT (CSTS.RDY does not follow),
    /// the status of Identify or Set Features, and what the function and allocating memory say.
    [[nodiscard]] static Result<std::shared_ptr<Controller>>
    open(os::System& system, std::shared_ptr<pci::Function> function, ControllerOptions options = {});

    // ---- what it is

    [[nodiscard]] const std::string& name() const noexcept;
    /// As at open.
    [[nodiscard]] const ControllerInfo& info() const noexcept;
    [[nodiscard]] Capabilities capabilities() const noexcept;
    [[nodiscard]] Version version() const noexcept;
    /// CMBLOC and CMBSZ; none where there is no controller memory buffer. Errors: as RegisterAccess::read32.
    [[nodiscard]] Result<std::optional<MemoryBuffer>> memory_buffer();
    /// log2 of the page in use (CC.MPS + 12): PRP entries count in it.
    [[nodiscard]] unsigned page_shift() const noexcept;
    /// Most bytes of one command (MDTS); none where the controller has no limit.
    [[nodiscard]] std::optional<ByteCount> max_transfer() const noexcept;
    /// I/O queue pairs that there can be, and why just so many.
    [[nodiscard]] std::uint32_t queue_count() const noexcept;
    [[nodiscard]] std::string queue_count_reason() const;
    /// Interrupt vectors set up.
    [[nodiscard]] unsigned interrupt_vectors() const noexcept;
    [[nodiscard]] const std::shared_ptr<pci::Function>& function() const noexcept;
    [[nodiscard]] std::shared_ptr<iommu::AddressSpace> address_space() const;
    [[nodiscard]] os::System& system() const noexcept;
    [[nodiscard]] ControllerState state() const noexcept;
    /// One look at CSTS. Errors: ENODEV (gone), EIO (CSTS.CFS).
    [[nodiscard]] Result<ControllerStatus> status();
    [[nodiscard]] RegisterAccess& registers() noexcept;

    // ---- administration. Errors of all: domain nvme (the controller's status), ETIMEDOUT, ECANCELED (reset
    // meanwhile), EIO (CSTS.CFS), ENODEV (gone, failed or resetting), EAGAIN (identifiers used up by timed-out
    // commands), ENOMEM.

    /// Any admin command; `data` goes to the controller or comes from it as bits 1:0 of the opcode say, through a
    /// buffer of the controller's own: it may be any memory. Answers dwords 0 and 1 of the completion. `timeout`: the
    /// option admin_timeout where none; 0: for ever. Errors also: EINVAL (longer than MDTS, or not a multiple of 4).
    [[nodiscard]] Result<std::uint64_t> admin(const Command& command, std::span<std::byte> data = {},
                                              std::optional<std::chrono::nanoseconds> timeout = std::nullopt);

    [[nodiscard]] Result<IdentifyData> identify(std::uint8_t cns, Nsid nsid, std::uint16_t controller_id = 0,
                                                std::uint8_t command_set = 0);
    [[nodiscard]] Result<ControllerInfo> identify_controller();
    /// Errors also: ENODEV when the namespace is not active, EPROTO.
    [[nodiscard]] Result<NamespaceInfo> identify_namespace(Nsid nsid);
    /// Ascending. Errors also: EPROTO when the list is not ascending.
    [[nodiscard]] Result<std::vector<Nsid>> active_namespaces();

    /// Fills `data`, in as many commands as MDTS asks for. Errors also: EINVAL (empty, or not multiples of 4), ENOTSUP
    /// (an offset, or more than one command, where the controller takes no offset).
    Result<void> get_log_page(const LogPageRequest& request, std::span<std::byte> data);
    [[nodiscard]] Result<std::uint32_t> get_feature(std::uint8_t feature, FeatureSelect select = FeatureSelect::current,
                                                    Nsid nsid = Nsid{0}, std::uint32_t cdw11 = 0,
                                                    std::span<std::byte> data = {});
    Result<std::uint32_t> set_feature(std::uint8_t feature, std::uint32_t cdw11, Nsid nsid = Nsid{0}, bool save = false,
                                      std::span<std::byte> data = {});

    /// Leaves an event request with the controller; AERL + 1 may be outstanding.
    Result<void> request_event();
    /// Events since the last call. Each used up one request.
    [[nodiscard]] Result<std::vector<Event>> take_events();

    // ---- I/O queues

    /// Creates a completion and a submission queue. Nothing is left behind when it fails.
    /// Errors: EINVAL (depth 0, 1 or above CAP.MQES + 1; no such vector), EBUSY (no identifier left), ENOTSUP or ERANGE
    /// (its doorbells cannot be mapped), ENOMEM, and those of administration.
    [[nodiscard]] Result<QueuePair> create_queue_pair(const QueueOptions& options = {});

    /// Identifiers for another owner, and back again.
    [[nodiscard]] Result<QueueIds> lend_queue_ids(std::uint32_t count);
    void return_queue_ids(QueueIds ids);

    // ---- life

    /// Disables the controller, ends every outstanding command with Outcome::reset (at its queue's poll()), and brings
    /// the controller up again; queues then restart(). Where disabling is not confirmed, the function is reset.
    /// Errors: as open(). When even a reset of the function does not help, the state is `failed` and all memory is
    /// kept.
    Result<void> reset();

    /// Resets of the function since opening, each because disabling the controller was not confirmed.
    [[nodiscard]] std::uint64_t function_resets() const noexcept;

    /// Keeps memory that the controller may still touch until it is confirmed disabled; for ever if that never happens.
    void keep(std::shared_ptr<void> memory, ByteCount bytes);
    /// What is kept so, queues whose deletion failed included.
    [[nodiscard]] ByteCount kept_memory() const;

    void release(Qid qid, std::uint32_t generation, std::unique_ptr<QueueResources> resources) noexcept override;
    Result<std::uint32_t> recreate(Qid qid, const QueueResources& resources, std::uint32_t entries) override;

  private:
    struct Parts;
    explicit Controller(std::unique_ptr<Parts> parts);

    Result<void> bring_up(bool first);
    Result<void> enable(bool first);
    Result<void> disable_confirmed();
    Result<void> negotiate_queues(bool first);
    Result<void> set_up_interrupts();
    Result<void> check_usable(const char* operation) const;
    Result<void> create_on_controller(Qid qid, DmaAddress submission, DmaAddress completion, std::uint32_t entries,
                                      std::optional<unsigned> vector);
    Result<void> delete_on_controller(Qid qid);
    void confirmed_disabled();
    void shut_down() noexcept;

    std::unique_ptr<Parts> parts_;
};

/// Memory that was never freed, since a controller that may still write to it could not be disabled.
struct AbandonedMemory {
    std::size_t controllers = 0;
    ByteCount bytes;
    std::vector<std::string> reasons; ///< one a controller
};
/// Of this process so far. Threads: any.
[[nodiscard]] AbandonedMemory abandoned_memory();

} // namespace upcie::nvme
