# Reads the output of go test -v, and prints the last lines of each failed test. Also prints the
# output of packages that could not be built, panicked or took too long.

# These lines name the test whose output follows.
/^=== (RUN|CONT|NAME|PAUSE) / { test = $3; next }

/^[[:space:]]*--- FAIL: / {
	name = $0
	sub(/^[[:space:]]*--- FAIL: /, "", name)
	sub(/ \(.*/, "", name)
	if (!(name in failed)) order[++failures] = name
	failed[name] = 1
	next
}
/^[[:space:]]*--- / { next }

/^FAIL[[:space:]]/ { packages = packages $0 "\n"; test = ""; crashed = 0; next }
/^(ok|PASS|\?)/ { test = ""; crashed = 0; next }

/^(panic: |fatal error: |# )/ { crashed = 40 }
crashed > 0 { crash = crash $0 "\n"; crashed--; next }

test != "" {
	lines[test, ++count[test]] = $0
}

END {
	print "\ngo-test: what failed:"
	for (i = 1; i <= failures; i++) {
		name = order[i]
		print "--- FAIL: " name
		first = count[name] - 24
		for (line = (first > 1 ? first : 1); line <= count[name]; line++) print lines[name, line]
	}
	printf "%s%s", crash, packages
}
