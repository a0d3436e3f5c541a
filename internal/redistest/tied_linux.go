package redistest

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// StartTied starts cmd so that the kernel kills it when this process ends in any way: by a crash, a test time-out,
// or a kill -9.
func StartTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}

// starter takes functions and runs them on one thread that lives as long as the process. Linux sends the death
// signal when the thread that started the child ends, and the Go runtime may end any other thread early.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})
