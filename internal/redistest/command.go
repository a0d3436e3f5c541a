package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// command is a server's command line, which can be run more than once.
type command struct {
	binary string
	args   []string
	port   int
	dir    string // working directory and logs
}

// errPortTaken means that another process took the port between choosing and using it.
var errPortTaken = errors.New("redistest: port taken")

// plainArgs are the arguments of a server that keeps nothing on disk.
func plainArgs(port int) []string {
	return []string{
		"--port", strconv.Itoa(port),
		"--bind", "127.0.0.1",
		"--save", "",
		"--appendonly", "no",
	}
}

// launch starts a server on a free port, with the arguments that args returns for that port.
func launch(dir string, args func(port int) []string) (command, *process, error) {
	binary, err := findBinary()
	if err != nil {
		return command{}, nil, err
	}
	for tries := 1; ; tries++ {
		port := freePort()
		c := command{
			binary: binary,
			args:   append(args(port), "--dir", dir),
			port:   port,
			dir:    dir,
		}
		proc, err := c.run()
		if errors.Is(err, errPortTaken) && tries < 5 {
			continue
		}
		return c, proc, err
	}
}

// run starts the server and returns when it answers.
func (c command) run() (*process, error) {
	log, err := os.CreateTemp(c.dir, "log-*")
	if err != nil {
		return nil, fmt.Errorf("redistest: no file for the server's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the server has its own handle

	proc, err := startProcess(c.binary, c.args, log)
	if err != nil {
		return nil, fmt.Errorf("redistest: starting %s: %w", c.binary, err)
	}
	err = poll(10*time.Second, func() error {
		if proc.ended() {
			return nil // no use waiting longer
		}
		return c.answers(proc.pid())
	})
	if proc.ended() {
		err = errors.New("it ended at once")
	}
	if err == nil {
		return proc, nil
	}
	proc.kill()

	said := tail(log, 4096)
	if strings.Contains(said, "Address already in use") {
		return nil, fmt.Errorf("%w: %d", errPortTaken, c.port)
	}
	return nil, fmt.Errorf("redistest: %s %s: %w; it said:\n%s", c.binary, strings.Join(c.args, " "), err, said)
}

// answers checks that the process pid, and no other process, answers at the port.
func (c command) answers(pid int) error {
	// A failed dial is expected at first, and go-redis would log it.
	conn, err := net.DialTimeout("tcp", loopback(c.port), time.Second)
	if err != nil {
		return err
	}
	_ = conn.Close()

	client := newClient(loopback(c.port))
	defer func() { _ = client.Close() }()
	info, err := client.Info(context.Background(), "server").Result()
	if err != nil {
		return err
	}
	if own := fmt.Sprintf("process_id:%d\r\n", pid); !strings.Contains(info, own) {
		return fmt.Errorf("port %d is answered by another process than %d, which was started; if the server is started by a script, let the script exec it", c.port, pid)
	}
	return nil
}

// tail returns the last bytes of a file, at most size.
func tail(file *os.File, size int64) string {
	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(size, info.Size()))
	n, err := file.ReadAt(text, info.Size()-int64(len(text)))
	if err != nil {
		return err.Error()
	}
	return string(text[:n])
}
