package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Annotations of commands.
const (
	optionalBool = "optional-bool" // the long name of a flag that is bare or takes true|false
	takesCommand = "takes-command" // the second argument is a shell command
)

// mergeOptionalBools lets -s and -r of the seed be given bare and with a separate
// value: "-s true ID cmd" becomes "-s=true ID cmd". Ids are never "true" or
// "false", but commands can be: where taking the word as a value would leave too
// few arguments, as in "exec ID -s true", it is an argument.
func mergeOptionalBools(root *cobra.Command, args []string) []string {
	cmd, rest, err := root.Traverse(args)
	if err != nil {
		return args // cobra will say so
	}
	flag := cmd.Flags().Lookup(cmd.Annotations[optionalBool])
	if flag == nil {
		return args
	}
	need := 1
	if cmd.Annotations[takesCommand] != "" {
		need = 2
	}
	merged := merge(rest, flag)
	if countArguments(merged, cmd.Flags()) < need {
		merged = rest
	}
	return append(args[:len(args)-len(rest):len(args)-len(rest)], merged...)
}

func merge(args []string, flag *pflag.Flag) []string {
	short, long := "-"+flag.Shorthand, "--"+flag.Name
	var out []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if v, ok := strings.CutPrefix(arg, short); ok && isBool(v) {
			out = append(out, long+"="+v)
			continue
		}
		if (arg == short || arg == long) && i+1 < len(args) && isBool(args[i+1]) {
			i++
			out = append(out, long+"="+args[i])
			continue
		}
		out = append(out, arg)
	}
	return out
}

func isBool(s string) bool { return s == "true" || s == "false" }

// countArguments counts what is neither a flag nor the value of one.
func countArguments(args []string, flags *pflag.FlagSet) int {
	n := 0
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return n + len(args) - i - 1
		case strings.HasPrefix(arg, "--"):
			name, _, hasValue := strings.Cut(arg[2:], "=")
			if f := flags.Lookup(name); !hasValue && f != nil && f.NoOptDefVal == "" {
				i++
			}
		case len(arg) > 1 && arg[0] == '-':
			if takesNext(arg[1:], flags) {
				i++
			}
		default:
			n++
		}
	}
	return n
}

// takesNext says whether the last of a group of short flags takes the next
// argument as its value.
func takesNext(group string, flags *pflag.FlagSet) bool {
	for i := range len(group) {
		f := flags.ShorthandLookup(group[i : i+1])
		if f != nil && f.NoOptDefVal == "" {
			return i == len(group)-1
		}
	}
	return false
}
