package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hangVariable, if set, turns TestHang from an empty test into the test binary that TestServersEndWithTheTestBinary
// kills.
const hangVariable = "REDISTEST_HANG"

func TestHang(t *testing.T) {
	if os.Getenv(hangVariable) == "" {
		return
	}
	own, paused, shared := Start(t), Start(t), Shared(t)
	paused.Pause()
	fmt.Println("serving", own.Addr(), paused.Addr(), shared.Addr())
	time.Sleep(time.Hour)
}

func TestServersEndWithTheTestBinary(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHang$")
	cmd.Env = append(os.Environ(), hangVariable+"=1", "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for lines := bufio.NewScanner(output); addrs == nil && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "serving "); ok {
			addrs = strings.Fields(rest)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()

	if len(addrs) != 3 {
		t.Fatalf("the other test binary serves at %q; want three addresses", addrs)
	}
	for _, addr := range addrs {
		err := poll(10*time.Second, func() error {
			conn, err := net.DialTimeout("tcp", addr, time.Second)
			if errors.Is(err, syscall.ECONNREFUSED) {
				return nil
			}
			if err == nil {
				_ = conn.Close()
			}
			return fmt.Errorf("dialing %s: %v; want it refused", addr, err)
		})
		if err != nil {
			t.Errorf("after the test binary was killed: %v", err)
		}
	}
}
