//go:build unix

package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

const processes = 8

// Laws 1 and 2: processes with many goroutines each on the same keys, with batches and remembered denials, are
// together as exact as one process that serves all requests one by one. Each key grants its quota and no unit more.
// Every answer, even from memory, was right at some moment between its call and its return.
func TestLaws1And2ManyProcessesAreOneLimiter(t *testing.T) {
	server, prefix := redistest.Start(t), "many"
	var workers []*worker
	for i := range processes {
		workers = append(workers, startWorker(t, task{Addr: server.Addr(), Prefix: prefix, Worker: i}))
	}
	for _, w := range workers {
		w.awaitReady(t)
	}
	for _, w := range workers {
		w.start(t)
	}
	type place struct{ subject, key int }
	histories := make(map[place][]operation)
	fromMemory := 0
	for _, w := range workers {
		for _, o := range w.history(t) {
			at := place{o.Subject, o.Key}
			histories[at] = append(histories[at], o)
			if o.Tier == limit.TierLocal {
				fromMemory++
			}
		}
	}

	l := newLimiter(t, server.Client(t), prefix, tiered.Deadline(patient))
	rules, err := openSubjects(l)
	if err != nil {
		t.Fatal(err)
	}
	total, observer := 0, observe(t, server.Client(t), prefix)
	for at, history := range histories {
		name, granted := fmt.Sprintf("%v, key %d", rules[at.subject].Algorithm(), at.key), int64(0)
		for _, o := range history {
			if o.Allowed {
				granted += o.Cost
			}
		}
		if inRedis := observer.charged(t, rules[at.subject], fmt.Sprint("key", at.key)); granted != quota || inRedis != quota {
			t.Errorf("%s: %d units granted, %d charged in Redis, want %d", name, granted, inRedis, quota)
		}
		if got := linearizable(history); got != porcupine.Ok {
			t.Errorf("%s: linearizable: %v, a history of %d decisions", name, got, len(history))
		}
		total += len(history)
	}
	t.Logf("%d decisions by %d processes of %d goroutines, %d of them from memory", total, processes, goroutines, fromMemory)
	if len(histories) != len(subjects)*keys || fromMemory < 100 {
		t.Errorf("%d keys, %d decisions from memory: the test shows little", len(histories), fromMemory)
	}
}

// worker is another process that runs work.
type worker struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
}

func startWorker(t *testing.T, its task) *worker {
	t.Helper()
	encoded, err := json.Marshal(its)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd: exec.Command(os.Args[0])}
	w.cmd.Env = append(os.Environ(), workerVariable+"="+string(encoded))
	w.cmd.Stderr = os.Stderr
	if w.input, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.output = bufio.NewReader(output)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // fails if the process has ended, as it should have
		_ = w.cmd.Wait()
	})
	return w
}

func (w *worker) awaitReady(t *testing.T) {
	t.Helper()
	if line, err := w.output.ReadString('\n'); line != "ready\n" {
		t.Fatalf("a worker says %q, %v", line, err)
	}
}

func (w *worker) start(t *testing.T) {
	t.Helper()
	if _, err := w.input.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
}

// history waits until the worker has finished, and returns its operations.
func (w *worker) history(t *testing.T) (operations []operation) {
	t.Helper()
	if err := json.NewDecoder(w.output).Decode(&operations); err != nil {
		t.Fatalf("a worker's history: %v", err)
	}
	return operations
}
