package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/dsnet/try"
	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
)

// tablesEnv is the file with the truth tables; told to the inner process.
const tablesEnv = "OVN_MULTINET_LAB_TABLES"

// WithTables has [Main] or [Enter] write the truth tables of Cyclonus for policies (e2e/cyclonus), once per version: two
// minutes on two cores the first time. It needs the network when Go's cache does not have the modules yet.
func WithTables() EnterOption {
	return Around(func(ctx context.Context) (func() error, error) {
		dir, err := writeTables(ctx)
		if err != nil {
			return nil, err
		}
		return nil, os.Setenv(tablesEnv, filepath.Join(dir, "tables.json"))
	})
}

// Tables reads the truth tables, as JSON, in a program that was entered [WithTables].
func Tables() ([]byte, error) { return os.ReadFile(os.Getenv(tablesEnv)) }

func writeTables(ctx context.Context) (_ string, err error) {
	defer try.Handle(&err)
	source := filepath.Join(try.E1(ModuleRoot()), "e2e", "cyclonus")
	key := []byte(runtime.Version())
	for _, file := range []string{"go.mod", "main.go"} {
		key = append(key, try.E1(os.ReadFile(filepath.Join(source, file)))...)
	}
	return buildcache.Entry("cyclonus", digest(key), func(dir string) (err error) {
		defer try.Handle(&err)
		fmt.Fprintln(os.Stderr, "building Cyclonus: two minutes on two cores, once per version")
		program := filepath.Join(dir, "cyclonus")
		try.E(GoBuild(ctx, source, "-o", program, "."))
		tables := try.E1(exec.CommandContext(ctx, program).Output())
		try.E(os.Remove(program)) // the tables are a fifth of its size
		return os.WriteFile(filepath.Join(dir, "tables.json"), tables, 0o644)
	})
}
