// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/nvme/command_error.hpp>

#include <cerrno>
#include <utility>

namespace upcie::nvme {

Error to_error(Status status, std::string operation, std::string subject) {
    Error error;
    error.domain = ErrorDomain::nvme;
    error.code = status.raw();
    error.code_name = status.name();
    error.operation = std::move(operation);
    error.subject = std::move(subject);
    error.hint = status.do_not_retry() ? "The controller says that the same command will fail again"
                                       : "The command may be tried again";
    if (status.more()) {
        error.hint += "; its error log has more about it";
    }
    return error;
}

Error to_error(const Completion& completion, std::string operation, std::string subject) {
    Error error;
    error.operation = std::move(operation);
    error.subject = std::move(subject);
    switch (completion.outcome()) {
    case Outcome::completed:
        return to_error(completion.status(), std::move(error.operation), std::move(error.subject));
    case Outcome::timed_out:
        error.code = ETIMEDOUT;
        error.hint = "The controller still holds the command and may touch its memory: keep that until the controller "
                     "answers or is reset. Give slow commands a longer time-out (Format and Sanitize take hours)";
        break;
    case Outcome::reset:
        error.code = ECANCELED;
        error.hint = "The controller was reset while the command was outstanding: whether it took effect is unknown";
        break;
    }
    return error;
}

} // namespace upcie::nvme
