/// nginx of the distribution, as a server of values: its configuration in a folder of the test. And certificates for
/// it, which openssl makes.
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "support/local_server.h"

namespace kernelwright::test {

inline constexpr const char* kNginxProgram = "/usr/sbin/nginx";
inline constexpr const char* kOpensslProgram = "/usr/bin/openssl";

/// Lines of the configuration beside those that make it serve PUT, GET and DELETE below `folder`/data.
struct NginxLines {
  std::string server{};                                                       // of the server
  std::string location = "dav_methods PUT DELETE; create_full_put_path on;";  // of its one location
  std::string listen{};                                                       // behind the port: "ssl"
};

/// The command line of an nginx, one process, that serves `server`, a block of its configuration. Whatever that does
/// not name lies in `folder`.
inline std::vector<std::string> nginx_words(const std::string& folder, const std::string& server) {
  mkdir((folder + "/data").c_str(), 0700);
  std::ofstream config(folder + "/nginx.conf");
  config << "daemon off; master_process off; pid " << folder << "/nginx.pid; error_log " << folder << "/error.log;\n"
         << "events {}\nhttp {\n  log_format connections '$connection';\n  access_log " << folder
         << "/access.log connections;\n";
  for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
    config << "  " << kind << "_temp_path " << folder << "/" << kind << ";\n";
  config << server << "}\n";
  return {kNginxProgram, "-p", folder, "-e", folder + "/error.log", "-c", folder + "/nginx.conf"};
}

inline std::vector<std::string> nginx_words(const std::string& folder, int port, const NginxLines& lines = {}) {
  return nginx_words(folder, "server {\n  listen 127.0.0.1:" + std::to_string(port) + " " + lines.listen +
                                 ";\n  client_max_body_size 9m; root " + folder + "/data;\n  " + lines.server +
                                 "\n  location / { " + lines.location + " }\n}\n");
}

/// An authority, and the certificates that it has given to a server ("DNS:localhost") and to a client. ok is false if
/// openssl could not make them.
struct Certificates {
  explicit Certificates(const std::string& folder, const std::string& server_name)
      : ca(folder + "/ca.pem"),
        server(folder + "/server.pem"),
        server_key(folder + "/server.key"),
        client(folder + "/client.pem"),
        client_key(folder + "/client.key") {
    const std::string make =
        std::string(kOpensslProgram) + " req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 ";
    const std::string ca_key = folder + "/ca.key", by_ca = " -CA " + ca + " -CAkey " + ca_key;
    const auto run = [](const std::string& line) { return std::system((line + " >/dev/null 2>&1").c_str()) == 0; };
    ok = run(make + "-subj '/CN=an authority of tests' -keyout " + ca_key + " -out " + ca) &&
         run(make + "-subj /CN=server -addext subjectAltName=" + server_name +
             " -addext basicConstraints=CA:FALSE -keyout " + server_key + " -out " + server + by_ca) &&
         run(make + "-subj /CN=client -addext basicConstraints=CA:FALSE -keyout " + client_key + " -out " + client +
             by_ca);
  }
  /// The lines of a server that has these.
  NginxLines lines(const std::string& more = "") const {
    return {.server = "ssl_certificate " + server + "; ssl_certificate_key " + server_key + "; " + more,
            .listen = "ssl"};
  }
  std::string ca, server, server_key, client, client_key;
  bool ok = false;
};

}  // namespace kernelwright::test

#define KERNELWRIGHT_NEEDS_NGINX()                          \
  if (access(kernelwright::test::kNginxProgram, X_OK) != 0) \
  GTEST_SKIP() << "/usr/sbin/nginx is missing; install "    \
                  "nginx"
#define KERNELWRIGHT_NEEDS_OPENSSL()                          \
  if (access(kernelwright::test::kOpensslProgram, X_OK) != 0) \
  GTEST_SKIP() << "/usr/bin/openssl is missing; install openssl"
