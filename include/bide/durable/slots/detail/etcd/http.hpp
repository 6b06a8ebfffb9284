// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_ETCD_HTTP_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_ETCD_HTTP_HPP

// Sends one HTTP request at a time, over a connection that stays open.
//
// If a connection that was used before ends without an answer, libcurl sends the request again. But
// the server may have acted on the first request. Therefore, if a request must not be repeated,
// bide refuses to rewind its body. It also refuses to open a socket after libcurl has read a part
// of the body. The request then fails.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/slots/detail/server/url.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <curl/curl.h>

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// libcurl's errors.
class curl_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "curl"; }
    std::string message(int code) const override {
        return ::curl_easy_strerror(static_cast<CURLcode>(code));
    }

    // Errors that last until an operator acts equal one of these conditions.
    std::error_condition default_error_condition(int code) const noexcept override {
        switch (static_cast<CURLcode>(code)) {
        case CURLE_UNSUPPORTED_PROTOCOL:
        case CURLE_WEIRD_SERVER_REPLY:
        case CURLE_SSL_CONNECT_ERROR: return std::errc::protocol_error;
        case CURLE_PEER_FAILED_VERIFICATION:
        case CURLE_SSL_ISSUER_ERROR:
        case CURLE_SSL_INVALIDCERTSTATUS: return std::errc::permission_denied;
        case CURLE_URL_MALFORMAT:
        case CURLE_SSL_CERTPROBLEM:
        case CURLE_SSL_CACERT_BADFILE:
        case CURLE_SSL_ENGINE_NOTFOUND:
        case CURLE_SSL_ENGINE_SETFAILED:
        case CURLE_SSL_CIPHER: return std::errc::invalid_argument;
        case CURLE_NOT_BUILT_IN: return std::errc::function_not_supported;
        default: return std::error_condition(code, *this);
        }
    }
};
BIDE_SHARED inline const std::error_category& curl_category() noexcept {
    static constinit bide::detail::never_destroyed<curl_category_type> category;
    return category.object;
}

// Tells errors apart that only libcurl's text distinguishes. It comes from OpenSSL or GnuTLS.
inline bool says_any(std::string_view error_text,
                     std::initializer_list<const char*> parts) noexcept {
    return std::any_of(parts.begin(), parts.end(), [error_text](const char* part) {
        return error_text.find(part) != error_text.npos;
    });
}
// Initialises libcurl once in a program. Returns false if that failed.
inline bool starts_curl() noexcept {
    static const bool is_ready = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    return is_ready;
}

// Blocks SIGPIPE in this thread while the object lives, and discards a SIGPIPE that a broken
// connection has raised. It is needed because some TLS libraries behind libcurl raise SIGPIPE when
// they write.
class no_sigpipe {
public:
    no_sigpipe() noexcept {
        ::sigset_t pending;
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
        if (!was_pending_) {
            ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
        }
    }

    no_sigpipe(const no_sigpipe&) = delete;
    no_sigpipe& operator=(const no_sigpipe&) = delete;
    ~no_sigpipe() {
        if (was_pending_) {
            return; // it was pending before this guard, and is not discarded
        }
        const int error = errno;
        ::sigset_t pending;
        sigpending(&pending);
        int number = 0;
        if (sigismember(&pending, SIGPIPE) == 1) {
            ::sigwait(&pipe_, &number);
        }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }

private:
    ::sigset_t pipe_;
    ::sigset_t before_;
    bool was_pending_;
};

struct http_request {
    std::string url;
    std::string_view body;
    std::string token; // empty: none
    bool may_repeat;   // the request changes nothing
    std::size_t longest_answer;
    deadline connected_by;
    deadline end;
};

struct http_answer {
    std::error_code error{}; // there is no complete answer
    bool was_sent = false;   // libcurl has read the whole body
    long status = 0;
    std::string body{};
    std::string error_text{}; // with an error: libcurl's text
};

class etcd_http {
public:
    // Sends a POST request. Connects if there is no connection.
    // Blocks: until there is an answer, or until the deadline.
    http_answer post(const http_request& what, const tls_files& tls) {
        const http_answer no_memory{std::make_error_code(std::errc::not_enough_memory)};
        if (!starts_curl() || ((state_ == nullptr || state_->owner != ::getpid()) && !make(tls))) {
            return no_memory;
        }
        // Without an empty "Expect:", libcurl waits for the server's permission to send a long
        // body. A header without a value is not sent.
        const std::string token = "Authorization: " + what.token;
        std::unique_ptr<curl_slist, list_freer> headers;
        for (const char* const line :
             {"Content-Type: application/json", "Expect:", token.c_str()}) {
            curl_slist* const longer = ::curl_slist_append(headers.get(), line);
            if (longer == nullptr) {
                return no_memory;
            }
            static_cast<void>(headers.release());
            headers.reset(longer);
        }
        exchange e{&what};
        if (!prepare(what, e, headers.get())) {
            return no_memory;
        }
        state_->current = &e;
        state_->error_text[0] = '\0';
        CURLcode code = CURLE_OK;
        {
            const no_sigpipe guard;
            code = ::curl_easy_perform(state_->handle.get());
        }
        state_->current = nullptr;
        http_answer answer{
            error_of(code, e), e.given == what.body.size(), 0, std::move(e.answer), {}};
        if (answer.error) {
            answer.error_text =
                state_->error_text[0] != '\0' ? state_->error_text : ::curl_easy_strerror(code);
            // The server refused the certificate in the handshake, before it read the request.
            answer.was_sent = answer.was_sent && answer.error != std::errc::permission_denied;
        }
        ::curl_easy_getinfo(state_->handle.get(), CURLINFO_RESPONSE_CODE, &answer.status);
        return answer;
    }

    // Whether there is a connection, as far as the last request knows.
    bool is_open() const noexcept { return state_ != nullptr && state_->open != 0; }
    // In a child of fork(), only closes the sockets.
    void drop() noexcept { state_.reset(); }

private:
    static constexpr int cloexec =
#if defined(SOCK_CLOEXEC)
        SOCK_CLOEXEC +
#endif
        0;
    struct handle_freer {
        void operator()(CURL* handle) const noexcept { ::curl_easy_cleanup(handle); }
    };
    struct list_freer {
        void operator()(curl_slist* list) const noexcept { ::curl_slist_free_all(list); }
    };

    // The request that is being sent.
    struct exchange {
        const http_request* request;
        std::size_t given = 0;
        std::string answer{};
        bool is_too_long = false;
    };

    // A handle of libcurl and its sockets. Its address is passed to libcurl and must not change.
    struct state {
        static constexpr int most_sockets = 16;
        pid_t owner = ::getpid();
        int sockets[most_sockets];
        int open = 0;
        exchange* current = nullptr;
        char error_text[CURL_ERROR_SIZE] = "";
        std::unique_ptr<CURL, handle_freer> handle; // destroyed first: it closes the sockets
    };

    // A child of fork() closes its copies of the sockets and leaks the rest: libcurl's clean-up may
    // send the server a message that ends the parent's connection.
    struct state_freer {
        void operator()(state* s) const noexcept {
            if (s->owner == ::getpid()) {
                delete s;
                return;
            }
            for (int i = 0; i < s->open; ++i) {
                ::close(s->sockets[i]);
            }
        }
    };

    static std::size_t give(char* to, std::size_t size, std::size_t n, void* of) noexcept {
        exchange& e = *static_cast<exchange*>(of);
        const std::string_view rest = e.request->body.substr(e.given);
        const std::size_t given = rest.size() < size * n ? rest.size() : size * n;
        std::memcpy(to, rest.data(), given);
        e.given += given;
        return given;
    }
    static int rewind(void* of, curl_off_t to, int from) noexcept {
        exchange& e = *static_cast<exchange*>(of);
        if (to != 0 || from != SEEK_SET || (e.given != 0 && !e.request->may_repeat)) {
            return CURL_SEEKFUNC_FAIL;
        }
        e.given = 0;
        return CURL_SEEKFUNC_OK;
    }
    static std::size_t take(char* from, std::size_t size, std::size_t n, void* of) noexcept {
        exchange& e = *static_cast<exchange*>(of);
        if (size * n > e.request->longest_answer - e.answer.size()) {
            e.is_too_long = true;
            return 0;
        }
        const bool has_memory = try_to([&] { e.answer.append(from, size * n); });
        return has_memory ? size * n : 0;
    }
    static curl_socket_t open_socket(void* of, curlsocktype, curl_sockaddr* to) noexcept {
        state& s = *static_cast<state*>(of);
        if (s.open == state::most_sockets || s.current == nullptr ||
            (s.current->given != 0 && !s.current->request->may_repeat)) {
            return CURL_SOCKET_BAD;
        }
        const int fd = ::socket(to->family, to->socktype | cloexec, to->protocol);
        if (fd >= 0) {
            s.sockets[s.open++] = fd;
        }
        return fd;
    }

    static int close_socket(void* of, curl_socket_t fd) noexcept {
        state& s = *static_cast<state*>(of);
        for (int i = 0; i < s.open; ++i) {
            if (s.sockets[i] == fd) {
                s.sockets[i] = s.sockets[--s.open];
                break;
            }
        }
        return ::close(fd);
    }

    // Calls the function curl_easy_setopt, not the macro of the same name.
    template <class Value> bool set(CURLoption option, Value value) const noexcept {
        return (::curl_easy_setopt)(state_->handle.get(), option, value) == CURLE_OK;
    }
    bool make(const tls_files& tls) {
        state_.reset();
        state_.reset(new state);
        state_->handle.reset(::curl_easy_init());
        const auto name = [this](CURLoption option, const std::string& file) {
            return file.empty() || set(option, file.c_str());
        };
        const bool is_made =
            state_->handle != nullptr && set(CURLOPT_NOSIGNAL, 1L) && set(CURLOPT_POST, 1L) &&
            set(CURLOPT_PROXY, "") && set(CURLOPT_MAXCONNECTS, 1L) &&
            set(CURLOPT_TCP_KEEPALIVE, 1L) &&
            set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1)) &&
            set(CURLOPT_READFUNCTION, &give) && set(CURLOPT_SEEKFUNCTION, &rewind) &&
            set(CURLOPT_WRITEFUNCTION, &take) && set(CURLOPT_OPENSOCKETFUNCTION, &open_socket) &&
            set(CURLOPT_OPENSOCKETDATA, static_cast<void*>(state_.get())) &&
            set(CURLOPT_CLOSESOCKETFUNCTION, &close_socket) &&
            set(CURLOPT_CLOSESOCKETDATA, static_cast<void*>(state_.get())) &&
            set(CURLOPT_ERRORBUFFER, static_cast<char*>(state_->error_text)) &&
            name(CURLOPT_CAINFO, tls.ca_file) && name(CURLOPT_SSLCERT, tls.cert_file) &&
            name(CURLOPT_SSLKEY, tls.key_file);
        if (!is_made) {
            state_.reset();
            return false;
        }
#if LIBCURL_VERSION_NUM >= 0x075700
        // At the deadline libcurl does not wait for its thread that looks up a name.
        static_cast<void>(set(CURLOPT_QUICK_EXIT, 1L));
#endif
        return true;
    }

    bool prepare(const http_request& what, exchange& e, curl_slist* headers) const noexcept {
        return set(CURLOPT_URL, what.url.c_str()) && set(CURLOPT_HTTPHEADER, headers) &&
               set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(what.body.size())) &&
               set(CURLOPT_READDATA, static_cast<void*>(&e)) &&
               set(CURLOPT_SEEKDATA, static_cast<void*>(&e)) &&
               set(CURLOPT_WRITEDATA, static_cast<void*>(&e)) &&
               set(CURLOPT_CONNECTTIMEOUT_MS, ms_until(what.connected_by)) &&
               set(CURLOPT_TIMEOUT_MS, ms_until(what.end));
    }
    std::error_code error_of(CURLcode code, const exchange& e) const noexcept {
        const bool is_cut = code == CURLE_SSL_CONNECT_ERROR || code == CURLE_SEND_ERROR ||
                            code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING;
        // The server refused the client's certificate, or the lack of one; with TLS 1.3 it refuses
        // after the handshake.
        if (is_cut && says_any(state_->error_text, {"alert"}) &&
            says_any(state_->error_text, {"ertificate", "unknown ca", "access denied"})) {
            return std::make_error_code(std::errc::permission_denied);
        }
        if (code == CURLE_SSL_CONNECT_ERROR && // the connection broke in the handshake
            says_any(state_->error_text, {"SSL_ERROR_SYSCALL", "unexpected eof", "reset by peer",
                                          "non-properly terminated", "Broken pipe"})) {
            return std::make_error_code(std::errc::connection_reset);
        }
        switch (code) {
        case CURLE_OK: return {};
        case CURLE_OPERATION_TIMEDOUT: return std::make_error_code(std::errc::timed_out);
        case CURLE_OUT_OF_MEMORY: return std::make_error_code(std::errc::not_enough_memory);
        case CURLE_COULDNT_RESOLVE_HOST: return std::make_error_code(std::errc::host_unreachable);
        case CURLE_WRITE_ERROR:
            return std::make_error_code(e.is_too_long ? std::errc::message_size
                                                      : std::errc::not_enough_memory);
        case CURLE_UNSUPPORTED_PROTOCOL: // the server's: the URL's scheme was checked
        case CURLE_WEIRD_SERVER_REPLY: return std::make_error_code(std::errc::protocol_error);
        case CURLE_GOT_NOTHING:
        case CURLE_PARTIAL_FILE:
        case CURLE_SEND_FAIL_REWIND:
        case CURLE_SEND_ERROR:
        case CURLE_RECV_ERROR: return std::make_error_code(std::errc::connection_reset);
        case CURLE_COULDNT_CONNECT: {
            if (e.given != 0) { // open_socket() refused to send the body again
                return std::make_error_code(std::errc::connection_reset);
            }
            long number = 0;
            ::curl_easy_getinfo(state_->handle.get(), CURLINFO_OS_ERRNO, &number);
            return {number != 0 ? static_cast<int>(number) : ECONNREFUSED, std::generic_category()};
        }
        default: return {static_cast<int>(code), curl_category()};
        }
    }

    static long ms_until(deadline end) noexcept {
        const std::int64_t rest = end.steady_ns() - native_platform::now();
        constexpr std::int64_t longest = 3'600'000;
        const std::int64_t ms = rest <= 0 ? 1 : (rest - 1) / 1'000'000 + 1; // 0 means no limit
        return static_cast<long>(ms < longest ? ms : longest);
    }

    std::unique_ptr<state, state_freer> state_;
};

// ---- implementation

}}} // namespace bide::BIDE_ABI::detail

#endif
