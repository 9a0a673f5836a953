// Options that several verbs take.
#include <limits>

#include "cli/command_line.h"
#include "cli/number_options.h"
#include "cli/word_options.h"

namespace kernelwright::cli {

void CommandLine::remote(CLI::App* verb) {
  word(verb, "--remote", options_.remote.address,
       "Server that hosts share, redis://HOST or https://HOST/PREFIX; else $KERNELWRIGHT_REMOTE, for passwords too",
       "ADDRESS");
  many(word(verb, "--remote-key", options_.remote.keys,
            "Public key (PEM, Ed25519) of a builder whose binaries are taken from the server; may be repeated", "KEY"));
  word(verb, "--remote-signing-key", options_.remote.signing_key,
       "Private key (PEM, Ed25519) by which what is compiled here is signed, and sent to the server", "KEY");
  word(verb, "--remote-ca", options_.remote.ca, "Authorities (PEM) of an https server; else the system's", "FILE");
  word(verb, "--remote-certificate", options_.remote.certificate, "Certificate (PEM) shown to an https server", "FILE");
  word(verb, "--remote-certificate-key", options_.remote.certificate_key, "Its private key (PEM)", "KEY");
}

void CommandLine::configs(CLI::App* verb) {
  word(verb, "CONFIG", options_.configs, "Config files, plans or folders", "FILE")->required();
  problem(verb);
}

void CommandLine::problem(CLI::App* verb) {
  many(word(verb, "--problem", options_.problems, "Problem of a plan, by name; may be repeated", "NAME"));
}

void CommandLine::device(CLI::App* verb) {
  verb->add_option("--device", options_.device, "cuda, emulator, or auto: cuda where a GPU is")
      ->check(CLI::IsMember({"cuda", "emulator", "auto"}));
}

void CommandLine::claimed_arch(CLI::App* verb) {
  many(word(verb, "--arch", options_.archs,
            "What the emulator claims to be: sm_80 ... sm_120a; else the config's, else sm_90a", "ARCH"));
}

void CommandLine::emulated(CLI::App* verb) {
  verb->add_flag("--hazards{all}", options_.hazards,
                 "On the emulator, look for races, missing fences and misused barriers; a report exits 1. "
                 "--hazards=error shows what a legal schedule can break, =isa also what the ISA asks for, =all all")
      ->check(CLI::IsMember({"error", "isa", "all"}));
  word(verb, "--hazard-suppressions", options_.hazard_suppressions,
       "With --hazards: reports to leave out; a line is a rule, a kernel, a place and the reason", "FILE");
  word(verb, "--sarif", options_.sarif, "With --hazards: write the reports there as SARIF 2.1.0", "FILE");
  verb->add_option("--completion", options_.completion, "On the emulator, when asynchronous work completes")
      ->check(CLI::IsMember({"eager", "lazy", "random"}));
}

void CommandLine::archs(CLI::App* verb) {
  many(word(verb, "--arch", options_.archs, "Architecture: sm_80 ... sm_120a; may be repeated", "ARCH"));
}

void CommandLine::shapes(CLI::App* verb) {
  many(word(verb, "--shape", options_.shapes, "Shape of the config, by name; may be repeated", "SHAPE"));
}

void CommandLine::seed(CLI::App* verb) {
  whole(verb, "--seed", options_.seed, "Seed of the random inputs, and of the emulator's schedule", 0, kAnyWhole);
}

}  // namespace kernelwright::cli
