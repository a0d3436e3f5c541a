package redistest

import (
	"os"
	"os/exec"
)

// process is a started program. Its methods are safe for concurrent use, and harmless once the program has ended: a
// signal never reaches another process that got the same ID.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended and been waited for
}

func startProcess(binary string, args []string, output *os.File) (*process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := StartTied(cmd); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // an error only says that it was killed, as is usual here
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the program, even a paused one, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended already
	<-p.done
}
