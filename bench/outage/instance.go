package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// instance is one worker process, as the parent sees it.
type instance struct {
	index   int
	log     string
	process *exec.Cmd
	stdin   io.WriteCloser
	orders  *json.Encoder
	ended   chan struct{} // closed after its last news, when the process has been waited for

	mu     sync.Mutex // guards the rest
	latest news
	final  *final
	err    error
}

// startInstance starts this program again as a worker. The worker ends when its standard input is closed, which also
// happens when this process dies.
func startInstance(index int, dir string, d duty) (*instance, error) {
	file, err := os.CreateTemp(dir, "calls-*")
	if err != nil {
		return nil, err
	}
	_ = file.Close() // the worker writes it
	in := &instance{index: index, log: filepath.Clean(file.Name()), ended: make(chan struct{})}
	d.Log = in.log
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in.process = exec.Command(self)
	in.process.Env = append(os.Environ(), workerVariable+"="+string(text))
	in.process.Stderr = os.Stderr
	if in.stdin, err = in.process.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := in.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := in.process.Start(); err != nil {
		return nil, err
	}
	in.orders = json.NewEncoder(in.stdin)
	go in.listen(stdout)
	return in, nil
}

func (in *instance) listen(stdout io.Reader) {
	lines := json.NewDecoder(bufio.NewReader(stdout))
	for {
		var n news
		if lines.Decode(&n) != nil {
			break
		}
		in.mu.Lock()
		if n.Final != nil {
			in.final = n.Final
		} else {
			in.latest = n
		}
		in.mu.Unlock()
	}
	err := in.process.Wait()
	in.mu.Lock()
	if err == nil && in.final == nil {
		err = fmt.Errorf("instance %d ended without a report", in.index)
	}
	in.err = err
	in.mu.Unlock()
	close(in.ended)
}

func (in *instance) news() news {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.latest
}

func (in *instance) order(o order) error {
	if err := in.orders.Encode(o); err != nil {
		return fmt.Errorf("instance %d: %w", in.index, err)
	}
	return nil
}

// end lets the instance finish its current work, and returns its report.
func (in *instance) end() (*final, error) {
	_ = in.stdin.Close() // fails if it was closed before
	<-in.ended
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.final, in.err
}

// kill ends the instance at once. The end of its log is lost, so it is only used after failures.
func (in *instance) kill() {
	_ = in.process.Process.Kill() // fails only if the process has ended already
	<-in.ended
}
