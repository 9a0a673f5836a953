/// Two pairs of Ed25519 keys for tests, as OpenSSL wrote them. They sign nothing but what tests make.
#pragma once

namespace kernelwright::test {

inline constexpr const char* kSigningPem =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIKyPzq+Mqj1w1tZmDhs3jbysIUefXPUD47M5/oBEKjlq\n"
    "-----END PRIVATE KEY-----\n";
inline constexpr const char* kPublicPem =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAmkwHR7WcNq8b3fEy/rmCQYRfG6vTthCo/dtyMkAA6Y4=\n"
    "-----END PUBLIC KEY-----\n";
inline constexpr const char* kOtherPublicPem =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAPbKHwPj4ZIiurkjFd4YwhATuJV3uyOhTy6cVc/Tl+zE=\n"
    "-----END PUBLIC KEY-----\n";

}  // namespace kernelwright::test
