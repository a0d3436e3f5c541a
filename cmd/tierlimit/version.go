package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
)

const versionUsage = `Usage: tierlimit version

Prints the version of this command, of the library in it, and of Go.
`

func runVersion(args []string, stdout io.Writer) error {
	set := newFlags("version")
	if err := parseFlags(set, args, versionUsage, 0, stdout); err != nil {
		return err
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this command was built without a record of its version")
	}
	return printVersion(stdout, info)
}

const libraryPath = "github.com/tierlimit/tierlimit"

func printVersion(w io.Writer, info *debug.BuildInfo) error {
	fmt.Fprintf(w, "tierlimit %s", cmp.Or(info.Main.Version, "(unknown version)"))
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			fmt.Fprintf(w, ", revision %s", setting.Value)
		case setting.Key == "vcs.modified" && setting.Value == "true":
			fmt.Fprint(w, " with changes")
		}
	}
	for _, module := range info.Deps {
		if module.Path == libraryPath {
			fmt.Fprintf(w, "\nlibrary %s", cmp.Or(module.Version, "(unknown version)"))
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", info.GoVersion)
	return err
}
