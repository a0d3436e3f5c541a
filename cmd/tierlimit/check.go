package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/page"
)

const checkUsage = `Usage: tierlimit check FILE...

Checks rules files like a service that loads them, and prints each mistake with its place:
FILE:LINE:COLUMN: CAUSE. The exit status is 1 if there are any mistakes. No Redis is needed.
`

func runCheck(args []string, stdout, stderr io.Writer) error {
	set := newFlags("check")
	if err := parseFlags(set, args, checkUsage, len(args), stdout); err != nil {
		return err
	}
	if set.NArg() == 0 {
		return usageError{errors.New("no rules file given")}
	}
	mistakes := 0
	for _, path := range set.Args() {
		r, err := loadRules(path)
		if err != nil {
			for _, problem := range problems(err) {
				fmt.Fprintln(stderr, problem)
				mistakes++
			}
			continue
		}
		fmt.Fprintf(stdout, "%s: %s, no mistakes\n", path, page.Count(len(r.names), "rule"))
		r.close()
	}
	if mistakes > 0 {
		return fmt.Errorf("%s in rules files", page.Count(mistakes, "mistake"))
	}
	return nil
}
