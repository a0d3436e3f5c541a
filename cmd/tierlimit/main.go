// Command tierlimit shows what limits hold, and tries limits on real traffic.
//
//	tierlimit show [flags] RULE KEY   what Redis holds for a key
//	tierlimit top [flags] RULE        the fullest keys of a rule
//	tierlimit check FILE...           check rules files, as for CI
//	tierlimit replay [flags] [FILE]   replay an access log, algorithm by algorithm
//	tierlimit plan [flags]            what each way to enforce a limit costs, and the choice
//	tierlimit report [flags] [FILE]   accuracy against memory on a log, as one HTML file
//	tierlimit demo [flags] [FILE]     a page with a fleet that can be cut off from Redis
//	tierlimit version                 which version this is
//
// See "tierlimit COMMAND -h".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

const usage = `tierlimit shows the state of request limits, and tries limits on real traffic.

	tierlimit show [flags] RULE KEY   what Redis holds for a key
	tierlimit top [flags] RULE        the fullest keys of a rule
	tierlimit check FILE...           check rules files, as for CI
	tierlimit replay [flags] [FILE]   replay an access log, algorithm by algorithm
	tierlimit plan [flags]            what each way to enforce a limit costs, and the choice
	tierlimit report [flags] [FILE]   accuracy against memory on a log, as one HTML file
	tierlimit demo [flags] [FILE]     a page with a fleet that can be cut off from Redis
	tierlimit version                 which version this is

"tierlimit COMMAND -h" lists a command's flags.
`

func main() {
	logging.Disable() // the command reports errors by itself
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop)   // a second Ctrl-C ends the command at once
	signal.Ignore(syscall.SIGPIPE) // writing fails instead, so that keys written to Redis are still removed
	err := execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	var misuse usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, syscall.EPIPE): // the reader of the output has stopped reading
		os.Exit(1)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "tierlimit: interrupted")
		os.Exit(1)
	case errors.As(err, &misuse):
		fmt.Fprintln(os.Stderr, message(err))
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, message(err))
		os.Exit(1)
	}
}

// prefix is the beginning of the library's errors, and of the command's own messages.
const prefix = "tierlimit: "

// message returns an error's text with the prefix exactly once, at its beginning.
func message(err error) string { return prefix + strings.ReplaceAll(err.Error(), prefix, "") }

// usageError is a mistake on the command line.
type usageError struct{ error }

// execute runs a command until it is done, or its output cannot be written.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &output{to: stdout, failed: cancel}
	err := run(ctx, args, stdin, out, stderr)
	if out.err != nil {
		return out.err
	}
	return err
}

// output records the first write error, and writes nothing after it.
type output struct {
	to     io.Writer
	failed func()
	err    error
}

func (o *output) Write(p []byte) (n int, err error) {
	if o.err != nil {
		return 0, o.err
	}
	if n, o.err = o.to.Write(p); o.err != nil {
		o.failed()
	}
	return n, o.err
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return usageError{errors.New("no command given")}
	}
	switch args[0] {
	case "show":
		return runShow(ctx, args[1:], stdout, stderr)
	case "top":
		return runTop(ctx, args[1:], stdout, stderr)
	case "check":
		return runCheck(args[1:], stdout, stderr)
	case "version", "-version", "--version":
		return runVersion(args[1:], stdout)
	case "replay":
		return runReplay(ctx, args[1:], stdin, stdout, stderr)
	case "plan":
		return runPlan(ctx, args[1:], stdout, stderr)
	case "report":
		return runReport(ctx, args[1:], stdin, stdout, stderr)
	case "demo":
		return runDemo(ctx, args[1:], stdin, stdout, stderr)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return nil
	}
	return usageError{fmt.Errorf("unknown command %q: \"tierlimit help\" lists the commands", args[0])}
}
