//! What each kind of fix does to code, and the code that it refuses.

use super::{Rewrite, SourceFile, changes_of};
use crate::analysis::advice::CodeLine;
use proptest::prelude::*;

const TRAIN: &str = "\
import torch
def main():
    for batch in data:
        out = model(batch)
        loss = criterion(out,
                         batch)
        opt.zero_grad()
        loss.backward()
";

/// The text with a fix at the first line that contains some text, in its function.
fn fixed(text: &str, (line, function): (&str, &str), rewrite: &Rewrite) -> Result<String, String> {
    let number = text.lines().position(|it| it.contains(line)).unwrap() as u64 + 1;
    let file = SourceFile { path: "a.py".to_owned(), text: text.to_owned() };
    let line =
        CodeLine { label: String::new(), file: String::new(), line: number, function: function.to_owned(), text: None };
    let mut changes = changes_of(&file, &line, rewrite, 1)?;
    changes.sort_by_key(|change| change.lines.start);
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    for change in changes.iter().rev() {
        lines.splice(change.lines.clone(), [change.new.as_str()]);
    }
    Ok(lines.concat())
}

/// A fix of a statement at the level of the module.
fn of_one(statement: &str, rewrite: &Rewrite) -> Result<String, String> {
    let first = statement.lines().next().unwrap();
    let text = format!("import torch\nfrom torch import optim\n{statement}\n");
    let fixed = fixed(&text, (first, "<module>"), rewrite)?;
    Ok(fixed.strip_prefix("import torch\nfrom torch import optim\n").unwrap().trim_end().to_owned())
}

#[track_caller]
fn assert_refused(statement: &str, rewrite: &Rewrite, expected: &str) {
    let because = of_one(statement, rewrite).expect_err(statement);
    assert!(because.contains(expected) && !because.contains('\n'), "{statement}: {because}");
}

#[test]
fn statements_are_put_under_no_grad() {
    let wrapped = "with torch.no_grad():\n    out = model(x,\n              y)  # z";
    assert_eq!(of_one("out = model(x,\n          y)  # z", &Rewrite::NoGrad).unwrap(), wrapped);
    let fixed = fixed(TRAIN, ("model(", "main"), &Rewrite::NoGrad).unwrap();
    assert!(fixed.contains("\n        with torch.no_grad():\n            out = model(batch)\n        loss"), "{fixed}");
    for statement in
        ["a = f(x); b = a", "if f(x): pass", "x = 1", "a = f('''\n''')", "a = yield f(x)", "@f(x)\ndef g(): pass"]
    {
        assert!(of_one(statement, &Rewrite::NoGrad).is_err(), "{statement}");
    }
}

#[test]
fn tabs_line_ends_and_a_missing_newline_stay() {
    let text = "import torch\r\ndef f():\r\n\tout = model(x)";
    let expected = "import torch\r\ndef f():\r\n\twith torch.no_grad():\r\n\t\tout = model(x)";
    assert_eq!(fixed(text, ("model", "f"), &Rewrite::NoGrad).unwrap(), expected);
    let text = "def f():\r\n\tout = model(x)\r\n\tloss = out.loss\r\n\tloss.backward()";
    let deleted = fixed(text, ("model", "f"), &Rewrite::DeleteOutput).unwrap();
    assert_eq!(deleted, text.replace("out.loss\r\n", "out.loss\r\n\tdel out\r\n"));
    let text = "if a:\n  loss = model(x)\n  opt.zero_grad()";
    let moved = fixed(text, ("zero_grad", "<module>"), &Rewrite::MoveZeroGrad { before: 2 }).unwrap();
    assert_eq!(moved, "if a:\n  opt.zero_grad()\n  loss = model(x)\n");
}

#[test]
fn the_function_and_the_import_must_match() {
    let because = fixed(TRAIN, ("model(", "train"), &Rewrite::NoGrad).unwrap_err();
    assert_eq!(because, "expected a line of train, found one of main");
    let without = TRAIN.replace("import torch\n", "import torch.nn as nn\n");
    assert!(fixed(&without, ("model(", "main"), &Rewrite::NoGrad).unwrap_err().contains("import torch"));
    let past_the_end = SourceFile { path: String::new(), text: "a\n".to_owned() };
    let line = CodeLine { label: String::new(), file: String::new(), line: 9, function: String::new(), text: None };
    assert!(changes_of(&past_the_end, &line, &Rewrite::NoGrad, 1).unwrap_err().contains("found none"));
}

#[test]
fn zero_grad_is_moved_within_its_block() {
    let rewrite = Rewrite::MoveZeroGrad { before: 4 };
    let moved = |text: &str| fixed(text, ("zero_grad", "main"), &rewrite);
    let expected =
        TRAIN.replace("        opt.zero_grad()\n", "").replace("        out", "        opt.zero_grad()\n        out");
    assert_eq!(moved(TRAIN).unwrap(), expected);
    let autocast =
        TRAIN.replace("        out = model(batch)", "        with autocast():\n            out = model(batch)");
    let moved_out = fixed(&autocast, ("zero_grad", "main"), &Rewrite::MoveZeroGrad { before: 5 }).unwrap();
    assert!(moved_out.contains("for batch in data:\n        opt.zero_grad()\n        with autocast():"), "{moved_out}");
    for (old, new, found) in [
        ("        loss = ", "        if not out: continue\n        loss = ", "continue"),
        ("        loss = ", "        opt = make()\n        loss = ", "opt"),
        ("        opt.zero_grad()", "        if late: opt.zero_grad()", "simple"),
        (
            "        opt.zero_grad()",
            "        if late:\n            opt.zero_grad()",
            "above zero_grad in the same block",
        ),
        ("        opt.zero_grad()", "        opt.zero_grad().x", "alone"),
    ] {
        let because = moved(&TRAIN.replace(old, new)).unwrap_err();
        assert!(because.contains(found), "{because}");
    }
}

#[test]
fn gradients_are_freed_instead_of_zeroed() {
    let text = "opt.zero_grad(set_to_none = False)\nloss = f()\nloss.backward()\n";
    let line = ("backward", "<module>");
    let fixed_text = fixed(text, line, &Rewrite::SetToNone { forward: Some(2) }).unwrap();
    assert_eq!(fixed_text, text.replace("set_to_none = False", ""));
    let late = fixed(text, line, &Rewrite::SetToNone { forward: Some(0) }).unwrap_err();
    assert!(late.contains("found it before backward"), "{late}");
    let none = fixed("loss.backward()\n", line, &Rewrite::SetToNone { forward: None }).unwrap_err();
    assert!(none.contains("0 times"), "{none}");
}

#[test]
fn optimizers_are_found_by_their_import() {
    let of = |class: &str| Rewrite::Optimizer { class: class.to_owned(), argument: "fused=True" };
    for (statement, class) in [("o = torch.optim.AdamW(p)", "Adam"), ("o = optim.SGD(p)", "SGD")] {
        assert_eq!(of_one(statement, &of(class)).unwrap(), statement.replace("(p)", "(p, fused=True)"));
    }
    let imported = "from torch.optim import (SGD,\n    Adam)\no = Adam(p)";
    assert!(of_one(imported, &of("Adam")).unwrap().ends_with("Adam(p, fused=True)"));
    assert_refused("o = bnb.optim.AdamW(p)", &of("Adam"), "found 0");
    assert_refused("o = Adam(p)", &of("Adam"), "found 0");
    assert_refused("o = optim.Adam(p), optim.Adam(q)", &of("Adam"), "found 2");
    assert_refused("o = optim.Adam(p, foreach=False)", &of("Adam"), "line 3: expected a call without foreach");
    assert_refused("o = optim.Adam(**options)", &of("Adam"), "unpacks a dictionary");
}

#[test]
fn arguments_go_to_the_call_of_the_model() {
    let rewrite = Rewrite::Argument("use_cache=False");
    assert_eq!(
        of_one("out = self.lm(ids.to(d)).logits", &rewrite).unwrap(),
        "out = self.lm(ids.to(d), use_cache=False).logits"
    );
    assert_refused("loss = f(model(x))", &rewrite, "model alone");
    assert_refused("out = model(x, use_cache=True)", &rewrite, "without use_cache");
    assert_refused("out = x + 1", &rewrite, "expected a call");
}

#[test]
fn activations_work_in_place_on_their_own_input() {
    let rewrite = Rewrite::InPlace { function: "relu".to_owned() };
    assert_eq!(of_one("x = F.relu(x)", &rewrite).unwrap(), "x = F.relu(x, inplace=True)");
    for statement in ["y = F.relu(x)", "x = torch.relu(x)", "x = F.relu(x) + y", "x = G.F.relu(x)"] {
        assert_refused(statement, &rewrite, "expected x = F.relu(x)");
    }
}

#[test]
fn what_is_stored_goes_to_the_cpu() {
    for (statement, expected) in [
        ("a.append(x)", "a.append(x.detach().cpu())"),
        ("a[k].append(x.mean(1))  # b", "a[k].append(x.mean(1).detach().cpu())  # b"),
        ("a += f(x)", "a += f(x).detach().cpu()"),
        ("a += x * y", "a += (x * y).detach().cpu()"),
        ("x = -y.mean()\na.append(x)", "x = -y.mean()\na.append(x.detach().cpu())"),
    ] {
        assert_eq!(of_one(statement, &Rewrite::StoreOnCpu).unwrap(), expected);
    }
    for (statement, found) in [
        ("a.append(model(x))", "expected a tensor"),
        ("a.append((x, y))", "expected a tensor"),
        ("a += [x]", "expected a tensor"),
        ("a.append(x.cpu())", "expected a tensor"),
        ("a += x.item()", "found .item()"),
        ("x = model(y)\na.append(x)", "expected a tensor"),
        ("x = y + z\na.append(x)\nb.append(x)", "found it 2 times"),
        ("return_value(x)", "assignment"),
    ] {
        assert_refused(statement, &Rewrite::StoreOnCpu, found);
    }
}

#[test]
fn files_are_loaded_to_the_cpu() {
    let load = |statement: &str| of_one(&format!("{statement}\nm.load_state_dict(c)"), &Rewrite::LoadOnCpu);
    for (statement, expected) in [
        ("c = torch.load(p)", "c = torch.load(p, map_location=\"cpu\")"),
        ("c = torch.load(p, map_location=f(x, y))", "c = torch.load(p, map_location=\"cpu\")"),
    ] {
        assert!(load(statement).unwrap().starts_with(expected));
    }
    assert!(load("c = torch.load(p, d)").unwrap_err().contains("map_location"));
    assert_refused("c = torch.load(p)", &Rewrite::LoadOnCpu, "load_state_dict");
}

#[test]
fn outputs_are_deleted_after_their_last_use() {
    let delete = |text: &str| fixed(text, ("model(", "main"), &Rewrite::DeleteOutput);
    let late = "                         batch)\n";
    assert_eq!(delete(TRAIN).unwrap(), TRAIN.replace(late, &format!("{late}        del out\n")));
    let nested =
        TRAIN.replace("        opt", "        if log:\n            show(out)\n            more()\n        opt");
    assert!(delete(&nested).unwrap().contains("            more()\n        del out\n        opt"));
    for (old, new, found) in [
        ("loss.backward()", "loss.backward()\n        show(out)", "line 9"),
        ("loss.backward()", "(out + loss).backward()", "line 8"),
        ("for batch", "out = 0\n    for batch", "line 3"),
        ("model(batch)", "model(out)", "depends on the last one"),
        ("out =", "out, h =", "one variable"),
        ("loss.backward()", "pass", "backward below"),
        ("        opt.zero_grad()", "    show(f'{out}')", "line 7"),
    ] {
        let because = delete(&TRAIN.replacen(old, new, 1)).unwrap_err();
        assert!(because.contains(found), "{new}: {because}");
    }
}

#[test]
fn an_expanded_tensor_is_not_copied() {
    let statement = "return_ = m.expand(b, -1).contiguous()";
    assert_eq!(of_one(statement, &Rewrite::ExpandWithoutCopy).unwrap(), "return_ = m.expand(b, -1)");
    assert_refused("m = m.repeat(b).contiguous()", &Rewrite::ExpandWithoutCopy, ".expand(");
    assert_refused("m = m.expand(b).clone()", &Rewrite::ExpandWithoutCopy, ".contiguous()");
}

/// Parts of statements that the rewrites look for.
const PARTS: [&str; 32] = [
    "x",
    "é",
    " ",
    "\n",
    "\n    ",
    "\r\n",
    "=",
    "+=",
    ".",
    ",",
    ":",
    ";",
    "(",
    ")",
    "[",
    "]",
    "'",
    "\"\"\"",
    "\\",
    "#",
    "-",
    "def f(",
    "return ",
    "model(",
    ".append(",
    ".expand(x).contiguous()",
    "torch.load(",
    "opt.zero_grad()",
    "loss.backward()",
    "zero_grad(set_to_none=False)",
    "import torch",
    "F.relu(x)",
];

proptest! {
    /// Source code is not checked by anybody: whatever it is, it is edited or refused in one line.
    #[test]
    fn any_text_is_edited_or_refused(parts in prop::collection::vec(prop::sample::select(&PARTS[..]), 0..40)) {
        let file = SourceFile { path: String::new(), text: parts.concat() };
        let rewrites = [
            Rewrite::NoGrad,
            Rewrite::MoveZeroGrad { before: 1 },
            Rewrite::SetToNone { forward: Some(1) },
            Rewrite::Optimizer { class: "x".to_owned(), argument: "fused=True" },
            Rewrite::Argument("use_cache=False"),
            Rewrite::InPlace { function: "relu".to_owned() },
            Rewrite::StoreOnCpu,
            Rewrite::LoadOnCpu,
            Rewrite::DeleteOutput,
            Rewrite::ExpandWithoutCopy,
        ];
        for (line, function) in (0..6).flat_map(|line| [(line, "f"), (line, "<module>")]) {
            let line = CodeLine { label: String::new(), file: String::new(), line, function: function.to_owned(), text: None };
            for rewrite in &rewrites {
                match changes_of(&file, &line, rewrite, 1) {
                    Ok(changes) => {
                        let lines = file.text.split_inclusive('\n').count();
                        prop_assert!(changes.iter().all(|change| change.lines.start <= change.lines.end && change.lines.end <= lines));
                    }
                    Err(because) => prop_assert!(!because.contains('\n') && because.contains("expected "), "{because}"),
                }
            }
        }
    }
}
