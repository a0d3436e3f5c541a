//go:build unix

package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"
)

// pause stops the program where it is. The signal may take a moment to arrive. Where the system shows its arrival
// (Linux), pause returns after it.
func (p *process) pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return poll(5*time.Second, func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
		if err != nil {
			return nil // this system has no such file
		}
		// The state follows the command's name, which is in parentheses.
		_, state, _ := bytes.Cut(stat, []byte(") "))
		if !bytes.HasPrefix(state, []byte("T")) {
			return fmt.Errorf("process %d was sent SIGSTOP and is still in state %.1s", p.pid(), state)
		}
		return nil
	})
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
