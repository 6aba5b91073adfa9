use crate::support::memviz;

#[test]
fn a_build_without_the_server_says_which_feature_has_it() {
    for args in [&["mcp"] as &[&str], &["mcp", "--root", "."], &["mcp", "--help"]] {
        let error = memviz(args);
        error.expect_error("the feature mcp (cargo install --path . --features mcp; the Python package has it, too)");
    }
    memviz(&["mcq"]).expect_error("unrecognized subcommand 'mcq'");
}
