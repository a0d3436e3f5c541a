package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

// Flags that do not say what to do are told, and start no service.
func TestFlags(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end() // a service that starts ends at once, without an error
	for args, want := range map[string]string{
		"-check=":                            "neither -check nor -try",
		"-overlay=f":                         "neither -check nor -try",
		"-hits=5":                            "neither -check nor -try",
		"-check=dir -try=domain=d,k=v":       "-check and -try are both set",
		"-try=domain=d,k=v -hits=4294967296": "-hits is 4294967296, must be at most 4294967295",
		"-try=x":                             "must be like domain=",
		"-check=/nowhere":                    "/nowhere",
		"-chekc=dir":                         "flag provided but not defined",
		"config":                             `unknown argument "config"`,
		"/bin/ratelimit x":                   `unknown argument "/bin/ratelimit"`,
		"/bin/ratelimit":                     "PORT is", // as of docker-compose files: it serves
		"":                                   "PORT is",
	} {
		err := run(ended, strings.Fields(args), []string{"PORT=x"}, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}
