package images

import (
	"debug/elf"
	"fmt"
	"maps"
	"slices"
)

// machines has the machine of an ELF file by GOARCH.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// CheckStatic returns an error if a file of an image is not a program for the image's platform, or if the program needs
// a dynamic linker: the image has none. It does not check files of Debian packages.
func CheckStatic(img Image) error {
	for _, name := range slices.Sorted(maps.Keys(img.Files)) {
		if _, debian := img.Packages[name]; debian {
			continue
		}
		if err := checkStatic(img.Files[name], img.arch()); err != nil {
			return fmt.Errorf("image %s: %w", img.Name, err)
		}
	}
	return nil
}

func checkStatic(file, arch string) error {
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("%s is not a program: %w", file, err)
	}
	defer f.Close()
	if !isFor(f, arch) {
		return fmt.Errorf("%s is for %s, not for %s: build it with GOARCH=%s", file, f.Machine, arch, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s needs a dynamic linker: build it with CGO_ENABLED=0", file)
		}
	}
	return nil
}

func isFor(f *elf.File, arch string) bool {
	machine, known := machines[arch]
	return !known || f.Machine == machine
}
