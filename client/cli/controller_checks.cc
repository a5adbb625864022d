// SPDX-License-Identifier: Apache-2.0
#include "client/cli/controller_checks.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "base/host.h"
#include "base/time_text.h"
#include "client/cli/admin_client.h"
#include "client/cli/status_text.h"
#include "identity/certificates.h"
#include "identity/tls_identity.h"
#include "identity/tls_probe.h"
#include "identity/token.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectTimeout{3000};
// A few handshakes of TCP and TLS are well below a second.
constexpr milliseconds kClocksDiffer{5000}, kClocksAreWrong{300000};
constexpr int kMostFaults = 10;
constexpr char kCa[] = "CA file", kCertificate[] = "controller's certificate",
               kToken[] = "token's state", kClock[] = "clock",
               kVersion[] = "version of the controller", kWorkers[] = "workers",
               kWorkerCertificates[] = "certificates of workers";
constexpr char kSetClock[] = "timedatectl set-ntp true, on the host whose clock is wrong";

// "" if the address takes a connection in time; else why not.
std::string ConnectFault(const addrinfo& to, milliseconds timeout) {
  const int fd = ::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return std::strerror(errno);
  int error = ::connect(fd, to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd waited{fd, POLLOUT, 0};
    socklen_t size = sizeof error;
    error = ETIMEDOUT;
    if (::poll(&waited, 1, static_cast<int>(timeout.count())) == 1)
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  ::close(fd);
  return error == 0 ? "" : std::strerror(error);
}

std::string NumericOf(const addrinfo& address) {
  char host[256] = "";
  ::getnameinfo(address.ai_addr, address.ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

// The certificates of the CAs, as --tls-ca has them. False: they cannot be used.
bool CheckAuthorities(const std::string& path, const Report& report) {
  const auto authorities = ReadAuthorities(path);
  if (!authorities.ok()) {
    report(Fail(kCa, Text(authorities.status()),
                "copy ca.pem of the directory that `fairway init` made, and name it by --tls-ca"));
    return false;
  }
  const auto facts = FactsOf(LastingAuthority(*authorities));
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  if (facts.ok() && facts->end <= now) {
    report(Fail(kCa, fmt::format("{} has expired on {}", path, TimeText(facts->end)),
                "make a new CA: fairway init DIRECTORY"));
    return false;
  }
  if (facts.ok() && facts->begin > now) {
    report(Fail(kCa,
                fmt::format("{} is valid from {} on, by this host's clock that is later", path,
                            TimeText(facts->begin)),
                kSetClock));
    return false;
  }
  const std::string soon = AuthorityWarning(*authorities, now);
  if (!soon.empty()) {
    report(Warn(kCa, fmt::format("{} {}", path, soon),
                "fairway init NEXT, and so on as in docs/operate.md, Another CA"));
  } else {
    report(Pass(kCa, fmt::format("{} can be read{}", path,
                                 facts.ok() ? ", valid until " + TimeText(facts->end) : "")));
  }
  return true;
}

// What of a certificate's fault is to be done.
std::string FixOfCertificate(const std::string& fault) {
  if (fault.find("is valid from") != std::string::npos) return kSetClock;
  if (fault.find("has expired") != std::string::npos) {
    return "on the controller's host: fairway issue --controller --from DIRECTORY (if the clock "
           "here is right: date -u)";
  }
  if (fault.find("not the controller") != std::string::npos)
    return "name the controller's clients' port by --controller (29000 by default)";
  return "name the ca.pem of this controller's cluster by --tls-ca";
}

// TLS of the controller. False: no call can be made.
bool CheckTls(const Reach& reach, const std::string& address, const Report& report) {
  std::string authorities;
  if (reach.tls_ca.empty()) {
    report(Skip(kCa, "no --tls-ca: plain text"));
  } else if (!CheckAuthorities(reach.tls_ca, report)) {
    return false;
  } else {
    authorities = *ReadAuthorities(reach.tls_ca);
  }
  const absl::Status fault = ProbeController(address, authorities, kConnectTimeout);
  if (!fault.ok()) {
    report(Fail(kCertificate, Text(fault),
                reach.tls_ca.empty() ? "give the cluster's CA: --tls-ca FILE"
                                     : FixOfCertificate(Text(fault))));
    return false;
  }
  if (reach.tls_ca.empty()) {
    report(Skip(kCertificate, "plain text needs none"));
    return true;
  }
  const auto shown = FetchCertificate(address, kConnectTimeout);
  const auto facts = shown.ok() ? FactsOf(*shown) : shown.status();
  if (!facts.ok()) {
    report(Fail(kCertificate, Text(facts.status()),
                "see whether it is the controller that listens there: fairway logs controller"));
    return false;
  }
  const std::string soon = ExpiryWarning(*shown, std::chrono::system_clock::now());
  if (!soon.empty()) {
    report(Warn(kCertificate, soon,
                "on the controller's host: fairway issue --controller --from DIRECTORY"));
  } else {
    report(Pass(kCertificate, fmt::format("signed by {}, names the controller, valid until {}",
                                          reach.tls_ca, TimeText(facts->end))));
  }
  return true;
}

// The file of the token. False: it cannot be used. A pipe is not read, since that would take from
// whoever is to have it.
bool CheckTokenFile(const Reach& reach, const Report& report) {
  constexpr char kWhat[] = "token file";
  const std::string& path = reach.token_file;
  if (path.empty()) {
    report(Skip(kWhat, reach.tls_ca.empty() ? "no --token-file: plain text needs none"
                                            : "no --token-file"));
    return true;
  }
  if (reach.tls_ca.empty()) {
    report(Fail(kWhat, "a token goes by TLS only, and there is no --tls-ca",
                "give the cluster's CA (--tls-ca FILE), or no --token-file"));
    return false;
  }
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    report(Fail(kWhat, fmt::format("{}: {}", path, std::strerror(errno)),
                "name the file that `fairway token create --to FILE` wrote"));
    return false;
  }
  if (!S_ISREG(facts.st_mode)) {
    report(Skip(kWhat, path + " is no regular file, so reading it might use it up"));
    return false;
  }
  const auto token = ReadTokenFile(path);
  if (!token.ok()) {
    report(Fail(kWhat, Text(token.status()),
                (facts.st_mode & 077U) != 0 ? fmt::format("chmod 600 {}", path)
                                            : "fairway token create --role=user --tenant=NAME"));
    return false;
  }
  report(Pass(kWhat, fmt::format("{} has a token, mode {:04o}", path, facts.st_mode & 07777U)));
  return true;
}

void SkipFrom(std::initializer_list<const char*> whats, const std::string& why,
              const Report& report) {
  for (const char* const what : whats) report(Skip(what, why));
}

// Why the status was not to be had. What needs it is skipped.
void ReportNoStatus(const absl::Status& status, const Reach& reach, const Report& report) {
  const std::string text = Text(status);
  if (status.code() == absl::StatusCode::kUnauthenticated && reach.token_file.empty()) {
    report(Warn(kToken, text, "name the file of a token by --token-file, to see more than this"));
  } else if (status.code() == absl::StatusCode::kUnauthenticated) {
    report(Fail(kToken, text,
                "an admin makes another: fairway token create --role=user --tenant=NAME; name its "
                "file by --token-file"));
  } else if (status.code() == absl::StatusCode::kPermissionDenied) {
    report(Warn(kToken, text, "use a token of the role user, viewer, operator or admin"));
  } else {
    const std::string fix = fmt::format(
        "see what it says: fairway logs controller, journalctl -u fairway-controller; "
        "and try: fairway status --controller {}",
        reach.controller);
    report(Fail("answer of the controller", text,
                reach.tls_ca.empty() ? "without TLS a controller serves its own user and root "
                                       "alone: run this as that user; else " +
                                           fix
                                     : fix));
    report(Skip(kToken, "the controller gave no answer"));
  }
  SkipFrom({kVersion, kClock, kWorkers, kWorkerCertificates},
           "the controller's status is not known", report);
}

void CheckCertificatesOfWorkers(AdminClient& admin, const Reach& reach, const Report& report) {
  if (reach.tls_ca.empty()) return report(Skip(kWorkerCertificates, "plain text needs none"));
  const auto certificates = admin.ListCertificates();
  if (!certificates.ok()) return report(Skip(kWorkerCertificates, Text(certificates.status())));
  CheckWorkerCertificates(*certificates, std::time(nullptr), report);
}

void CheckStatus(const Reach& reach, const Report& report) {
  AdminClient admin(reach);
  const auto asked = std::chrono::system_clock::now();
  const auto status = admin.GetStatus();
  const auto answered = std::chrono::system_clock::now();
  if (!status.ok()) return ReportNoStatus(status.status(), reach, report);
  report(reach.token_file.empty() ? Skip(kToken, "this controller asks for none: plain text")
                                  : Pass(kToken, "counts at this controller"));
  const std::string note = VersionNote(FAIRWAY_VERSION, status->version());
  report(note.empty() ? Pass(kVersion, status->version())
                      : Fail(kVersion, note, "install the same version on both hosts"));
  if (status->clock_ms() == 0) {
    report(Skip(kClock, "this controller is older, and does not tell its time"));
  } else {
    const auto middle =
        std::chrono::duration_cast<milliseconds>(asked.time_since_epoch() + (answered - asked) / 2);
    report(ClockFinding(milliseconds(status->clock_ms()) - middle,
                        std::chrono::ceil<milliseconds>(answered - asked)));
  }
  CheckWorkers(*status, report);
  CheckCertificatesOfWorkers(admin, reach, report);
}

}  // namespace

bool CheckAddress(const std::string& what, const std::string& address, const std::string& fix,
                  milliseconds timeout, const Report& report) {
  const std::string where = what + " address", port = what + " port";
  const auto place = SplitHostPort(address);
  if (!place.ok()) {
    report(Fail(where, Text(place.status()), "write it as HOST:PORT"));
    SkipFrom({port.c_str()}, "the address is not known", report);
    return false;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(place->first.c_str(), std::to_string(place->second).c_str(), &hints, &found);
  if (error != 0) {
    report(Fail(where, fmt::format("{} has no address: {}", place->first, ::gai_strerror(error)),
                fmt::format("name a host that is there; what the name servers say: getent hosts {}",
                            place->first)));
    SkipFrom({port.c_str()}, "the address is not known", report);
    return false;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  report(Pass(where, fmt::format("{} is {}", place->first, NumericOf(*found))));
  std::string fault;
  // The first few addresses, so that the time is bounded.
  int tried = 0;
  for (const addrinfo* one = found; one != nullptr && tried < 3; one = one->ai_next, ++tried) {
    fault = ConnectFault(*one, timeout);
    if (!fault.empty()) continue;
    report(Pass(port, fmt::format("{} takes connections", address)));
    return true;
  }
  report(Fail(port, fmt::format("{}: {}", address, fault), fix));
  return false;
}

void CheckController(const Reach& reach, const Report& report) {
  const auto address = ControllerAddress(reach.controller);
  constexpr char kFix[] =
      "start it there (fairway up, or systemctl start fairway-controller), name its clients' port "
      "by --controller, or let it through the firewall";
  const bool reached = CheckAddress("controller", address.ok() ? *address : reach.controller, kFix,
                                    kConnectTimeout, report);
  const char* why = "the controller is not reached";
  const bool file = CheckTokenFile(reach, report);
  if (!reached) {
    if (reach.tls_ca.empty()) {
      report(Skip(kCa, "no --tls-ca: plain text"));
    } else {
      CheckAuthorities(reach.tls_ca, report);
    }
    report(Skip(kCertificate, why));
  } else if (!CheckTls(reach, *address, report)) {
    why = "TLS does not fit";
  } else if (file) {
    return CheckStatus(reach, report);
  } else {
    why = "the token cannot be used";
  }
  SkipFrom({kToken, kVersion, kClock, kWorkers, kWorkerCertificates}, why, report);
}

Finding ClockFinding(milliseconds behind, milliseconds uncertain) {
  const auto apart = milliseconds(std::llabs(behind.count()));
  const auto sure = std::max(milliseconds(0), apart - uncertain);
  if (sure < kClocksDiffer)
    return Pass(kClock,
                fmt::format("within {} of the controller's",
                            FormatDuration(apart < milliseconds(1000)
                                               ? milliseconds(1000)
                                               : std::chrono::ceil<std::chrono::seconds>(apart))));
  const std::string text =
      fmt::format("this host's clock is {} {} the controller's",
                  FormatDuration(std::chrono::round<std::chrono::seconds>(apart)),
                  behind.count() > 0 ? "behind" : "ahead of");
  // Certificates and tokens then begin and end at the wrong time.
  return sure < kClocksAreWrong ? Warn(kClock, text, kSetClock) : Fail(kClock, text, kSetClock);
}

void CheckWorkers(const v1::GetStatusResponse& status, const Report& report) {
  if (status.executors().empty()) {
    return report(
        Warn(kWorkers, "none has registered",
             fmt::format("start one: fairway-worker --controller={}",
                         status.link_address().empty() ? "HOST:29002" : status.link_address())));
  }
  int faults = 0;
  const auto tell = [&](Finding finding) {
    if (++faults <= kMostFaults) report(std::move(finding));
  };
  for (const v1::Executor& one : status.executors()) {
    const std::string what = "worker " + one.worker();
    const std::string logs = fmt::format(
        "fairway logs {0}; on its host: journalctl -u "
        "fairway-worker",
        one.worker());
    if (!one.up()) {
      tell(Fail(what,
                one.last_error().empty() ? "its executor is down"
                                         : "its executor is down: " + CauseOf(one),
                logs));
    } else if (one.stalled_ms() != 0) {
      tell(Warn(what, StateText(one), fmt::format("fairway restart {}", one.worker())));
    } else if (!one.supervisor_connected()) {
      tell(Warn(what, "its supervisor is not connected", logs));
    }
  }
  for (const v1::Island& island : status.islands()) {
    if (!island.up())
      tell(Fail("island " + island.name(), "is down: not all its workers are up",
                fmt::format("fairway describe island {}", island.name())));
  }
  if (faults > kMostFaults)
    report(
        Fail(kWorkers, fmt::format("{} more faults", faults - kMostFaults), "fairway get workers"));
  if (faults == 0) {
    report(Pass(kWorkers, fmt::format("{} up, of {} islands", status.executors_size(),
                                      status.islands_size())));
  }
}

void CheckWorkerCertificates(const v1::ListCertificatesResponse& certificates, int64_t now_s,
                             const Report& report) {
  std::map<std::string, const v1::Certificate*> latest;
  for (const v1::Certificate& one : certificates.certificates()) {
    if (one.revoked_s() != 0) continue;
    const v1::Certificate*& kept = latest[one.worker()];
    if (kept == nullptr || kept->expires_s() < one.expires_s()) kept = &one;
  }
  if (latest.empty()) return report(Skip(kWorkerCertificates, "this controller has issued none"));
  int faults = 0;
  for (const auto& [worker, one] : latest) {
    // Workers renew theirs when two thirds have passed.
    const int64_t left = one->expires_s() - now_s, life = one->expires_s() - one->issued_s();
    if (4 * left >= life || ++faults > kMostFaults) continue;
    report(Warn(
        "certificate of worker " + worker,
        fmt::format("expires on {}, and was not renewed",
                    TimeText(std::chrono::sys_seconds(std::chrono::seconds(one->expires_s())))),
        fmt::format("if it runs, see why: fairway logs {0}; else it joins anew: fairway "
                    "token create --worker {0}",
                    worker)));
  }
  if (faults > kMostFaults)
    report(Warn(kWorkerCertificates, fmt::format("{} more", faults - kMostFaults),
                "fairway certificate list"));
  if (faults == 0)
    report(Pass(kWorkerCertificates, fmt::format("{}, none expires soon", latest.size())));
}

}  // namespace fairway
