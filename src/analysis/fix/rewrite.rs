//! The edits of each kind of fix, for a statement that has exactly the expected form.

use super::Edit;
use super::expressions::{closing, is_primary, keyword, only, outer, path_before, value, with_argument};
use super::python::{Code, first_line, is_word};
use crate::analysis::advice::Rewrite;
use std::ops::Range;

/// The edits that make a fix at a statement.
///
/// # Errors
/// If the code has another form, with what was expected and found, and the line if it is not that of the statement.
pub(super) fn edits(code: &Code<'_>, at: usize, rewrite: &Rewrite) -> Result<Vec<Edit>, String> {
    match rewrite {
        Rewrite::NoGrad => no_grad(code, at),
        Rewrite::MoveZeroGrad { before } => move_zero_grad(code, at, *before),
        Rewrite::SetToNone { forward } => set_to_none(code, at, *forward).map(|edit| vec![edit]),
        Rewrite::Optimizer { class, argument } => optimizer(code, class, argument).map(|edit| vec![edit]),
        Rewrite::Argument(argument) => argument_of_model(code, at, argument).map(|edit| vec![edit]),
        Rewrite::InPlace { function } => in_place(code, at, function).map(|edit| vec![edit]),
        Rewrite::StoreOnCpu => store_on_cpu(code, at).map(|edit| vec![edit]),
        Rewrite::LoadOnCpu => load_on_cpu(code, at).map(|edit| vec![edit]),
        Rewrite::DeleteOutput => delete_output(code, at).map(|edit| vec![edit]),
        Rewrite::ExpandWithoutCopy => expand_without_copy(code, at).map(|edit| vec![edit]),
    }
}

fn no_grad(code: &Code<'_>, at: usize) -> Result<Vec<Edit>, String> {
    code.require_simple(at)?;
    let mask = code.mask(at);
    if !mask.contains('(') || mask.split(|next| !is_word(next)).any(|word| word == "yield") {
        return Err(format!("expected a statement with a call, found {}", code.shown(at)));
    }
    if !code.imports_torch() {
        return Err("expected import torch in the file, found none".to_owned());
    }
    let lines = code.whole_lines(at);
    let header = format!("{}with torch.no_grad():{}", code.indent(at), code.line_end(at));
    let unit = if code.indent(at).starts_with('\t') { "\t" } else { code.unit() };
    let inside: String = code.text[lines.clone()]
        .split_inclusive('\n')
        .flat_map(|line| [if line.trim().is_empty() { "" } else { unit }, line])
        .collect();
    Ok(vec![Edit { range: lines, text: header + &inside }])
}

/// What ends an iteration, or uses gradients.
const BETWEEN: [&str; 8] = ["continue", "break", "return", "raise", "yield", "backward", "step", "grad"];

fn move_zero_grad(code: &Code<'_>, at: usize, before: u64) -> Result<Vec<Edit>, String> {
    code.require_simple(at)?;
    let (mask, lines) = (code.mask(at), code.lines(at));
    let open = mask.find('(').unwrap_or(mask.len());
    let path = path_before(mask, open);
    let is_call = path.len() == open && closing(mask, open).is_some_and(|close| close + 1 == mask.len());
    let Some(optimizer) = path.strip_suffix(".zero_grad").filter(|_| is_call && lines.end - lines.start == 1) else {
        return Err(format!("expected a call of zero_grad alone, found {}", code.shown(at)));
    };
    let block = code.body(code.parent(at));
    let of_block = |&other: &usize| code.indent(other).len() == code.indent(at).len();
    let mut above = (block.start..at).filter(of_block);
    let forward = above.rfind(|&other| code.lines(other).start <= before).filter(|_| before < lines.start);
    let Some(forward) = forward else {
        return Err(format!("expected the forward pass, line {before}, above zero_grad in the same block"));
    };
    let first = code.mask(forward).split(|next| !is_word(next)).next().unwrap_or_default();
    if matches!(first, "elif" | "else" | "except" | "finally") {
        return Err(format!("line {before}: expected a statement, found {first}"));
    }
    for between in forward..at {
        let mask = code.mask(between);
        let found = mask.split(|next| !is_word(next)).find(|word| BETWEEN.contains(word));
        let is_set = mask.strip_prefix(optimizer).is_some_and(|rest| rest.trim_start().starts_with('='));
        if let Some(found) = found.or(is_set.then_some(optimizer)) {
            let line = code.lines(between).start;
            return Err(format!(
                "line {line}: expected nothing that depends on gradients before zero_grad, found {found}"
            ));
        }
    }
    let moved = code.whole_lines(at);
    let mut text = code.text[moved.clone()].to_owned();
    if !text.ends_with('\n') {
        text += code.line_end(at);
    }
    let target = code.whole_lines(forward).start;
    Ok(vec![Edit { range: target..target, text }, Edit { range: moved, text: String::new() }])
}

fn set_to_none(code: &Code<'_>, at: usize, forward: Option<u64>) -> Result<Edit, String> {
    let is_zeroed = |open: &usize| {
        let close = closing(&code.mask, *open);
        close.is_some_and(|close| code.mask[open + 1..close].replace(' ', "") == "set_to_none=False")
    };
    let all: Vec<usize> = code.mask.match_indices(".zero_grad(").map(|(at, call)| at + call.len() - 1).collect();
    let found: Vec<usize> = all.into_iter().filter(is_zeroed).collect();
    let &[open] = found.as_slice() else {
        return Err(format!("expected zero_grad(set_to_none=False) once in the file, found it {} times", found.len()));
    };
    let backward = code.lines(at).start;
    let line = code.at_byte(open).map_or(0, |zeroed| code.lines(zeroed).start);
    if forward.is_some_and(|forward| forward < line && line <= backward) {
        return Err(format!("line {line}: expected zero_grad outside of the forward pass, found it before backward"));
    }
    let close = closing(&code.mask, open).unwrap_or(open);
    Ok(Edit { range: open + 1..close, text: String::new() })
}

fn optimizer(code: &Code<'_>, class: &str, argument: &str) -> Result<Edit, String> {
    let imports = |start: &str, name: &str| {
        (0..code.len()).any(|at| {
            let names = code.mask(at).strip_prefix(start).unwrap_or_default();
            names.trim_matches(['(', ')']).split(',').any(|found| found.trim() == name)
        })
    };
    let is_constructor = |open: &usize| {
        let path = path_before(&code.mask, *open);
        let (module, name) = path.rsplit_once('.').unwrap_or(("", path));
        // `AdamW` has the implementation of `Adam`.
        (name == class || name.strip_suffix('W') == Some(class))
            && match module {
                "torch.optim" => code.imports_torch(),
                "optim" => imports("from torch import ", module) || imports("import ", "torch.optim as optim"),
                "" => imports("from torch.optim import ", name),
                _ => false,
            }
    };
    let open = code.mask.match_indices('(').map(|(open, _)| open);
    let found: Vec<usize> = open.filter(is_constructor).collect();
    let &[open] = found.as_slice() else {
        return Err(format!("expected one optimizer torch.optim.{class} in the file, found {}", found.len()));
    };
    let line = code.at_byte(open).map_or(0, |at| code.lines(at).start);
    with_argument(code, open, argument, &["foreach", "fused", "differentiable"])
        .map_err(|error| format!("line {line}: {error}"))
}

/// Methods that may be called on the arguments of a model.
const OF_ARGUMENTS: [&str; 4] = ["to", "cuda", "long", "unsqueeze"];

fn argument_of_model(code: &Code<'_>, at: usize, argument: &str) -> Result<Edit, String> {
    code.require_simple(at)?;
    let value = value(code, at);
    let mask = &code.mask[value.clone()];
    let open = mask.find('(').filter(|&open| open > 0 && path_before(mask, open).len() == open);
    let call = open.and_then(|open| Some((open, closing(mask, open)?)));
    let Some((open, close)) = call else { return Err(format!("expected a call, found {}", code.shown(at))) };
    // One of these calls might be that of the model.
    let inside = &mask[open + 1..close];
    for (bracket, _) in inside.match_indices('(') {
        let method = path_before(inside, bracket).rsplit_once('.').map_or("", |(_, method)| method);
        if !OF_ARGUMENTS.contains(&method) {
            return Err(format!("expected the call of the model alone, found {}", code.shown(at)));
        }
    }
    let name = argument.split('=').next().unwrap_or_default();
    with_argument(code, value.start + open, argument, &[name])
}

fn in_place(code: &Code<'_>, at: usize, function: &str) -> Result<Edit, String> {
    code.require_simple(at)?;
    let mask = code.mask(at);
    let compact = mask.replace(' ', "");
    let target = compact.split('=').next().unwrap_or_default();
    let modules = ["F", "nn.functional", "torch.nn.functional"];
    if target.is_empty()
        || !target.chars().all(is_word)
        || !modules.iter().any(|module| compact == format!("{target}={module}.{function}({target})"))
    {
        return Err(format!("expected x = F.{function}(x), found {}", code.shown(at)));
    }
    let open = code.range(at).start + mask.find('(').unwrap_or_default();
    with_argument(code, open, "inplace=True", &["inplace"])
}

fn store_on_cpu(code: &Code<'_>, at: usize) -> Result<Edit, String> {
    code.require_simple(at)?;
    if let Some(stored) = stored(code, at) {
        if !outer(code.mask(at)).contains("+=") {
            require_tensor(code, stored.clone())?;
        }
        return on_cpu(code, stored);
    }
    // What the statement assigns may be stored by another one of its function.
    let (name, value) = assigned(code, at).ok_or_else(|| {
        format!("expected .append(...), += or an assignment to one variable, found {}", code.shown(at))
    })?;
    require_tensor(code, value)?;
    let of_scope = code.body(code.scope(at)).filter(|&other| code.require_simple(other).is_ok());
    let stored = of_scope.filter_map(|other| stored(code, other)).filter(|range| &code.mask[range.clone()] == name);
    let stored: Vec<_> = stored.collect();
    match stored.as_slice() {
        [stored] => on_cpu(code, stored.clone()),
        _ => {
            Err(format!("expected .append({name}) or += {name} once in the function, found it {} times", stored.len()))
        }
    }
}

/// The bytes of what a statement appends to a list or adds to a sum, and does nothing else.
fn stored(code: &Code<'_>, at: usize) -> Option<Range<usize>> {
    let (start, mask) = (code.range(at).start, code.mask(at));
    let around = outer(mask);
    if let Some(sum) = around.find("+=") {
        let blank = mask[sum + 2..].len() - mask[sum + 2..].trim_start().len();
        return (!around.contains(',')).then_some(start + sum + 2 + blank..start + mask.len());
    }
    let open = around.find(".append(")? + ".append".len();
    let close = closing(mask, open)?;
    let argument = outer(&mask[open + 1..close]);
    let is_all = close + 1 == mask.len() && is_primary(&mask[..open]) && !argument.contains([',', '*']);
    is_all.then_some(start + open + 1..start + close)
}

/// Functions and methods with a tensor as their result, and operators.
const TENSORS: [&str; 24] = [
    "abs",
    "cat",
    "clone",
    "contiguous",
    "cross_entropy",
    "detach",
    "exp",
    "flatten",
    "float",
    "half",
    "l1_loss",
    "log_softmax",
    "mean",
    "mse_loss",
    "norm",
    "repeat",
    "reshape",
    "softmax",
    "square",
    "squeeze",
    "stack",
    "sum",
    "unsqueeze",
    "view",
];
const OPERATORS: [char; 5] = ['+', '-', '*', '/', '@'];

/// A model and other functions may return something else than a tensor.
fn require_tensor(code: &Code<'_>, value: Range<usize>) -> Result<(), String> {
    let mask = code.mask[value.clone()].trim_start_matches('-');
    let last = outer(mask).rfind('(').map_or("", |open| path_before(mask, open));
    let is_method = mask.ends_with(')') && TENSORS.contains(&last.rsplit('.').next().unwrap_or_default());
    if is_method || mask.chars().all(is_word) || outer(mask).contains(OPERATORS) {
        return Ok(());
    }
    Err(format!("expected a tensor, found {}", first_line(&code.text[value])))
}

fn on_cpu(code: &Code<'_>, stored: Range<usize>) -> Result<Edit, String> {
    let mask = &code.mask[stored.clone()];
    let done = [".cpu()", ".item()", ".tolist()", ".numpy()"];
    if let Some(done) = done.iter().find(|&&done| mask.contains(done)) {
        return Err(format!("expected a tensor on the device, found {done}"));
    }
    let is_tuple = mask.starts_with('(') && outer(&mask[1..]).contains(',');
    if mask.is_empty() || mask.contains('\n') || mask.starts_with(['[', '{', '\'']) || is_tuple {
        return Err(format!("expected a tensor on one line, found {}", first_line(&code.text[stored])));
    }
    let text = &code.text[stored.clone()];
    let text = if is_primary(mask) { text.to_owned() } else { format!("({text})") };
    Ok(Edit { range: stored, text: text + ".detach().cpu()" })
}

fn load_on_cpu(code: &Code<'_>, at: usize) -> Result<Edit, String> {
    code.require_simple(at)?;
    let open = only(code, at, "torch.load(")? + "torch.load".len();
    if !code.mask.contains("load_state_dict(") {
        return Err("expected load_state_dict in the file, which copies to the device, found none".to_owned());
    }
    let close = closing(&code.mask, open).unwrap_or(open);
    let arguments = outer(&code.mask[open + 1..close]);
    if let Some(place) = keyword(&arguments, "map_location") {
        return Ok(Edit { range: open + 1 + place.start..open + 1 + place.end, text: "\"cpu\"".to_owned() });
    }
    if arguments.split(',').filter(|argument| !argument.contains('=')).count() > 1 {
        return Err("expected map_location=..., found more than one argument without a name".to_owned());
    }
    with_argument(code, open, "map_location=\"cpu\"", &[])
}

fn delete_output(code: &Code<'_>, at: usize) -> Result<Edit, String> {
    code.require_simple(at)?;
    let (name, value) = assigned(code, at)
        .ok_or_else(|| format!("expected an assignment to one variable, found {}", code.shown(at)))?;
    if is_used(code, name, value) {
        return Err(format!("expected a new value of {name}, found one that depends on the last one"));
    }
    let block = code.body(code.parent(at));
    let scope = code.body(code.scope(at));
    let backward = scope.clone().find(|&other| other > at && code.mask(other).contains(".backward("));
    let backward = backward.ok_or("expected backward below this line in the same function, found none")?;
    let uses: Vec<usize> = code.uses(name, scope).into_iter().filter(|&other| other != at).collect();
    let Some(&last) = uses.last() else { return Err(format!("expected a use of {name}, found none")) };
    if let Some(&other) = uses.iter().find(|&&other| other < at || other >= backward || !block.contains(&other)) {
        let line = code.lines(other).start;
        return Err(format!(
            "line {line}: expected no use of {name} outside of its block, nor from backward on, found one"
        ));
    }
    // A use inside a nested block ends with this block.
    let is_nested = |&other: &usize| code.indent(other).len() > code.indent(at).len();
    let end = (last + 1..block.end).take_while(|other| is_nested(other)).last().unwrap_or(last);
    if end >= backward {
        return Err(format!("expected the last use of {name} before the block with backward, found it inside"));
    }
    let after = code.whole_lines(end).end;
    let separator = if code.text[..after].ends_with('\n') { "" } else { code.line_end(at) };
    let end = if separator.is_empty() { code.line_end(at) } else { "" };
    Ok(Edit { range: after..after, text: format!("{separator}{}del {name}{end}", code.indent(at)) })
}

/// The only variable that a statement assigns, and the bytes of its value.
fn assigned<'c>(code: &'c Code<'_>, at: usize) -> Option<(&'c str, Range<usize>)> {
    let value = value(code, at);
    let name = code.mask[code.range(at).start..value.start].trim_end().strip_suffix('=')?.trim_end();
    (!name.is_empty() && name.chars().all(is_word)).then_some((name, value))
}

/// Whether a name occurs in some bytes.
fn is_used(code: &Code<'_>, name: &str, bytes: Range<usize>) -> bool {
    code.text[bytes].split(|next| !is_word(next)).any(|word| word == name)
}

const COPY: &str = ".contiguous()";

fn expand_without_copy(code: &Code<'_>, at: usize) -> Result<Edit, String> {
    code.require_simple(at)?;
    let open = only(code, at, ".expand(")? + ".expand".len();
    let close = closing(&code.mask, open).unwrap_or(open);
    if !code.mask[close + 1..].starts_with(COPY) {
        return Err(format!("expected .expand(...){COPY}, found {}", code.shown(at)));
    }
    Ok(Edit { range: close + 1..close + 1 + COPY.len(), text: String::new() })
}
