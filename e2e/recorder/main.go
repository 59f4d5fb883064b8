// Command recorder is a CNI plugin that makes nothing: it writes down how it was called, and answers what its
// configuration says. It stands in for plugins that cannot run here, and shows what any of them would get.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// config is what a scenario asks of it.
type config struct {
	Log    string                     `json:"log"`    // file that gets a line for each call
	Result json.RawMessage            `json:"result"` // printed on ADD; absent: prevResult, or nothing at all
	Prev   json.RawMessage            `json:"prevResult"`
	Fail   map[string]json.RawMessage `json:"fail"`   // by command: the error that is printed instead
	While  string                     `json:"while"`  // file; fails only as long as it is there
	Hang   string                     `json:"hang"`   // command that hangs, with a child
	Print  int                        `json:"print"`  // bytes that are printed instead of a result
	Device json.RawMessage            `json:"device"` // written on ADD into the file for device information, over what is there
	Given  struct {
		File string `json:"CNIDeviceInfoFile"`
	} `json:"runtimeConfig"`
}

// record is a call.
type record struct {
	Command string          `json:"command"`
	Env     []string        `json:"env"`
	Stdin   json.RawMessage `json:"stdin"`
	PID     int             `json:"pid"`
	// Device is what stood in the file for device information.
	Device string `json:"device,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run() error {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var c config
	if err := json.Unmarshal(stdin, &c); err != nil {
		return err
	}
	command := os.Getenv("CNI_COMMAND")
	if command == "VERSION" {
		fmt.Println(`{"cniVersion":"1.1.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`)
		return nil
	}
	if err := c.write(command, stdin); err != nil {
		return err
	}
	if c.Hang == command {
		// The child holds standard output open: who waits for its end only, waits long.
		if err := exec.Command("sleep", "1000").Start(); err != nil {
			return err
		}
		time.Sleep(time.Hour)
	}
	if text := c.Fail[command]; text != nil && c.fails() {
		return fmt.Errorf("%s", text)
	}
	if command == "ADD" && c.Device != nil {
		if err := os.WriteFile(c.Given.File, c.Device, 0o600); err != nil {
			return err
		}
	}
	switch {
	case command != "ADD":
	case c.Print > 0:
		fmt.Print(strings.Repeat("x", c.Print))
	case c.Result != nil:
		fmt.Println(string(c.Result))
	case c.Prev != nil:
		fmt.Println(string(c.Prev))
	}
	return nil
}

func (c *config) fails() bool {
	if c.While == "" {
		return true
	}
	_, err := os.Stat(c.While)
	return err == nil
}

// write appends a line to the log of this name; calls may run at once.
func (c *config) write(command string, stdin []byte) error {
	r := record{Command: command, Stdin: stdin, PID: os.Getpid()}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "CNI_") {
			r.Env = append(r.Env, kv)
		}
	}
	if c.Given.File != "" {
		text, err := os.ReadFile(c.Given.File)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r.Device = string(text)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Clean(c.Log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	return err
}
